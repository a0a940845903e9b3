#include "src/cuda_device/device_guard.hpp"

#include <cuda_runtime_api.h>

namespace fovea::cuda {

DeviceGuard::DeviceGuard(int device) noexcept {
  int current = -1;
  error_ = cudaGetDevice(&current);
  if (error_ != cudaSuccess || current == device) return;
  error_ = cudaSetDevice(device);
  if (error_ == cudaSuccess) previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

}  // namespace fovea::cuda
