// Makes a device current for a scope, so that tensors on cuda:1 work while the caller's is cuda:0.
#pragma once

namespace fovea::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // cudaSuccess (0), or why the device could not be made current.
  int error() const noexcept { return error_; }

 private:
  int previous_ = -1;  // to go back to; -1: nothing was changed
  int error_ = 0;
};

}  // namespace fovea::cuda
