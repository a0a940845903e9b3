#include "src/backends/flash_sm90/kernel.cuh"

namespace fovea::flash_sm90 {
namespace {
constexpr Key key(Mask mask) {
  return {Precision::bf16, 96, detail::block_kv(96, mask), mask, Source::dense};
}
}  // namespace

template KernelInfo kernel_info<key(Mask::none)>();
template KernelInfo
kernel_info<Key{Precision::bf16, 96, long_block(96), Mask::none, Source::dense}>();
template KernelInfo kernel_info<key(Mask::lengths)>();
template KernelInfo kernel_info<key(Mask::key_bits)>();
template KernelInfo kernel_info<key(Mask::band)>();
template KernelInfo
kernel_info<Key{Precision::bf16, 96, kListBlock, Mask::lengths, Source::list}>();

}  // namespace fovea::flash_sm90
