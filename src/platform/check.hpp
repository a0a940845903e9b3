// Reads one policy check against facts and a query.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fovea/platform.hpp"
#include "src/platform/policy.hpp"

namespace fovea::platform {

// What a reason says where nothing is installed.
inline constexpr std::string_view kNotInstalled = "not installed";
// The field of a reason about the code that this binary holds.
inline constexpr std::string_view kBinary = "binary";

// The check depends on the device alone, so software cannot help.
bool of_device(Check::Kind kind) noexcept;

// What a device check accepts: "sm_80 or newer". Empty for checks of other kinds.
std::string accepted_devices(const Check& check);

// Nothing when the check holds. `instead` names backends for the remedy. Not for Kind::backend.
std::optional<Reason> failure(const Check& check, std::string_view instead,
                              const DeviceFacts& facts, const PolicyQuery& query);

}  // namespace fovea::platform
