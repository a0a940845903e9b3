#include "src/cuda_device/runtime_error.hpp"

#include <cuda_runtime_api.h>

#include "src/core/text.hpp"

namespace fovea::cuda {
namespace {

std::string cuda_version(int number) {
  return text::concat(number / 1000, '.', number % 1000 / 10);
}

// What the user can do; empty when the runtime's own words are all there is.
std::string remedy(cudaError_t code) {
  switch (code) {
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "this machine has no NVIDIA driver (libcuda.so.1); install it, or use the CPU";
      return text::concat("the driver knows CUDA ", cuda_version(driver), ", this binary needs ",
                          cuda_version(CUDART_VERSION), "; update the driver");
    }
    case cudaErrorNoDevice:
      return "the NVIDIA driver shows this process no GPU; check nvidia-smi and "
             "CUDA_VISIBLE_DEVICES, or use the CPU";
    case cudaErrorStubLibrary:
      return "the toolkit's stub stands in for the driver; take the stubs folder off the library "
             "path";
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return "the driver's libraries do not fit its kernel module; reboot or reinstall the driver";
    case cudaErrorNoKernelImageForDevice:
      return "this binary has no code for the device; rebuild with ./dev build --cuda auto";
    case cudaErrorDevicesUnavailable:
      return "another process holds the device exclusively";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
      return "an earlier kernel of this process failed, and its device memory is lost; restart it";
    default:
      return {};
  }
}

}  // namespace

Error runtime_error(int code, std::string_view doing) {
  const auto error = static_cast<cudaError_t>(code);
  cudaGetLastError();
  const std::string advice = remedy(error);
  return {error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device_error,
          text::concat("CUDA: ", doing, ": ", cudaGetErrorString(error), " (",
                       cudaGetErrorName(error), ')', advice.empty() ? "" : "; ", advice),
          {}};
}

Status check(int code, std::string_view doing) {
  if (code == cudaSuccess) return {};
  return runtime_error(code, doing);
}

}  // namespace fovea::cuda
