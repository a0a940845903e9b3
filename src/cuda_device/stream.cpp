#include "src/cuda_device/stream.hpp"

#include <cuda_runtime_api.h>

#include "src/cuda_device/device_guard.hpp"
#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cuda {
namespace {

cudaStream_t handle(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }

cudaEvent_t event(const std::shared_ptr<void>& owner) noexcept {
  return static_cast<cudaEvent_t>(owner.get());
}

Result<std::shared_ptr<void>> make_event() {
  cudaEvent_t event = nullptr;
  FOVEA_CHECK(check(cudaEventCreate(&event), "creating an event"));
  return std::shared_ptr<void>(event,
                               [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
}

}  // namespace

Result<OwnedStream> OwnedStream::create(Device device) {
  const DeviceGuard guard(device.index);
  FOVEA_CHECK(check(guard.error(), "choosing a device"));
  cudaStream_t stream = nullptr;
  FOVEA_CHECK(
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
  OwnedStream owned;
  owned.handle_ = std::shared_ptr<void>(
      stream, [](void* s) { cudaStreamDestroy(static_cast<cudaStream_t>(s)); });
  owned.device_ = device;
  return owned;
}

Status synchronize(Stream stream) {
  return check(cudaStreamSynchronize(handle(stream)), "waiting for a stream");
}

Result<Timer> Timer::create(Device device) {
  const DeviceGuard guard(device.index);
  FOVEA_CHECK(check(guard.error(), "choosing a device"));
  Timer timer;
  FOVEA_TRY(timer.start_, make_event());
  FOVEA_TRY(timer.stop_, make_event());
  return timer;
}

Status Timer::start(Stream stream) const {
  return check(cudaEventRecord(event(start_), handle(stream)), "recording an event");
}

Status Timer::stop(Stream stream) const {
  return check(cudaEventRecord(event(stop_), handle(stream)), "recording an event");
}

Result<double> Timer::milliseconds() const {
  constexpr std::string_view kDoing = "timing";
  FOVEA_CHECK(check(cudaEventSynchronize(event(stop_)), kDoing));
  float elapsed = 0;
  FOVEA_CHECK(check(cudaEventElapsedTime(&elapsed, event(start_), event(stop_)), kDoing));
  return elapsed;
}

}  // namespace fovea::cuda
