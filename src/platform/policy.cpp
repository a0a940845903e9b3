#include "src/platform/policy.hpp"

namespace fovea::platform {

const Policy& policy(PlatformId platform) noexcept {
  switch (platform) {
    case PlatformId::cpu:
      break;
    case PlatformId::cuda:
      return cuda_policy();
    case PlatformId::rocm:
      return rocm_policy();
    case PlatformId::npu:
      return npu_policy();
    case PlatformId::xpu:
      return xpu_policy();
    case PlatformId::musa:
      return musa_policy();
  }
  return cpu_policy();
}

}  // namespace fovea::platform
