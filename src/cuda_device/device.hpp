// CUDA devices as the host sees them. A build without CUDA answers not_built to everything here.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"

namespace fovea::cuda {

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int sm = 0;        // compute capability, 90
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  std::string driver;   // "580.65.06"; "unknown" when the driver does not say
  std::string runtime;  // CUDA version of the runtime in this binary, "13.0"
};

// How many devices this process sees, 1 or more. Errors: not_built; device_error without a driver
// or a device. Thread-safe.
Result<int> device_count();

// Asked once per device and process. Errors as device_count, and device_error for an index beyond
// it. Thread-safe; static storage.
Result<const DeviceInfo*> device_info(int index);

// Whether every tensor's memory is where the tensor says: on `device`. Empty and absent tensors are
// passed over. Error invalid_tensor names the tensor. Asks the driver; touches no element.
Status check_pointers(const AttentionTensors& tensors, Device device);

}  // namespace fovea::cuda
