// Accelerators of this machine as their kernel drivers describe them, for platforms whose runtime
// this project does not link. None of it has been run on such hardware; the tests use trees of
// files and libraries of their own.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/device_facts.hpp"

namespace fovea::platform {

// Where a function of a shared library is; null when there is no such library or function.
using FindFunction = std::function<void*(const char* library, const char* function)>;

// What is looked at; a test hands in its own.
struct ProbeSources {
  std::filesystem::path root = "/";
  FindFunction find;
};

// This machine; libraries are loaded on first use and stay loaded.
ProbeSources machine_sources();

// The devices of a platform in the order of their driver: rocm, npu, xpu or musa; none for others.
std::vector<DeviceFacts> driver_devices(PlatformId platform, const ProbeSources& sources);

// Where driver_devices looks, for messages.
std::string_view looked_at(PlatformId platform) noexcept;

// 90402 is gfx942. Empty for 0.
std::string gfx_name(int64_t gfx_target_version);

}  // namespace fovea::platform
