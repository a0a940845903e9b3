// Where a tensor lives, with the bit layout of DLPack's DLDevice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/error.hpp"

namespace fovea {

// extension: devices that DLPack has no name for, such as Ascend NPUs; oneapi: XPUs.
enum class DeviceType : int32_t {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,
  rocm = 10,
  extension = 12,
  oneapi = 14
};

struct Device {
  DeviceType type = DeviceType::cpu;
  int32_t index = 0;

  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpu{};

// "cpu", "cuda:1". Thread-safe; allocates.
FOVEA_API std::string to_string(Device device);

// Reads "cpu", "cuda" (index 0) or "cuda:N". Error invalid_argument names what is accepted.
FOVEA_API Result<Device> parse_device(std::string_view text);

}  // namespace fovea
