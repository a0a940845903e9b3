#include "src/backends/flash_sm90/kernel.cuh"

namespace fovea::flash_sm90 {
namespace {
constexpr Key pairs(int head_dim) {
  return {Precision::f16, head_dim, kListBlock, Mask::lengths, Source::pairs};
}
constexpr Key small(int head_dim) {
  return {Precision::f16, head_dim, kListBlock, Mask::lengths, Source::small};
}
}  // namespace

template KernelInfo kernel_info<pairs(64)>();
template KernelInfo kernel_info<pairs(96)>();
template KernelInfo kernel_info<pairs(128)>();
template KernelInfo kernel_info<small(64)>();
template KernelInfo kernel_info<small(96)>();
template KernelInfo kernel_info<small(128)>();

}  // namespace fovea::flash_sm90
