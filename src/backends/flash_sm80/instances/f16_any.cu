#include "src/backends/flash_sm80/kernel.cuh"

namespace fovea::flash_sm80 {

KernelInfo f16_any_kernel(const Key& key) {
  return find_kernel<cuda::F16, Form::any, 64, 128, 256>(key);
}

}  // namespace fovea::flash_sm80
