#include "src/backends/flash_sm90/kernel.cuh"

namespace fovea::flash_sm90 {
namespace {
constexpr Key key(Mask mask) {
  return {Precision::f16, 128, detail::block_kv(128, mask), mask, Source::dense};
}
}  // namespace

template KernelInfo kernel_info<key(Mask::none)>();
template KernelInfo
kernel_info<Key{Precision::f16, 128, long_block(128), Mask::none, Source::dense}>();
template KernelInfo kernel_info<key(Mask::lengths)>();
template KernelInfo kernel_info<key(Mask::key_bits)>();
template KernelInfo kernel_info<key(Mask::band)>();
template KernelInfo
kernel_info<Key{Precision::f16, 128, kListBlock, Mask::lengths, Source::list}>();

}  // namespace fovea::flash_sm90
