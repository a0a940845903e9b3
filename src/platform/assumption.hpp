// What a check takes for granted where facts do not settle it.
#pragma once

#include <optional>

#include "fovea/platform.hpp"
#include "src/platform/policy.hpp"

namespace fovea::platform {

// Of a check that holds: the fact that was not given or not understood, and what it must be for the
// check to hold in truth. Nothing when the facts settle it.
std::optional<Reason> assumption(const Check& check, const DeviceFacts& facts);

// A row's package that no fact tells of.
std::optional<Reason> assumed_package(const Row& row);

}  // namespace fovea::platform
