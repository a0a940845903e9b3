#include "src/backends/flash_sm80/float_kernel.cuh"

namespace fovea::flash_sm80 {

KernelInfo f32_kernel(const Key& key) {
  if (key.head_dim == 64) return float_kernel_info<64>();
  if (key.head_dim == 128) return float_kernel_info<128>();
  return float_kernel_info<256>();
}

}  // namespace fovea::flash_sm80
