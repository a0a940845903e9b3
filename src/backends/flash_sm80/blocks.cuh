// The key blocks a query tile visits, those that need masking first.
#pragma once

#include "src/cuda/attention_call.cuh"

namespace fovea::flash_sm80 {

struct Blocks {
  int count = 0, partials = 0;
  int first = 0, low = 0, high_partials = 0;

  FOVEA_DEVICE int at(int i) const {
    if (i < high_partials) return first - i;
    if (i < partials) return low + (i - high_partials);
    return first - (i - (partials - high_partials));
  }
};

/// Blocks that no row of the tile sees, by length and window, are not among them. With a mask
/// tensor every block counts as partial.
template <int kBlockQ, int kBlockKv>
FOVEA_DEVICE Blocks find_blocks(const cuda::AttentionCall& call, const cuda::Item& item,
                                int tile_row) {
  const int last_row = min(tile_row + kBlockQ, item.q_length) - 1;
  const cuda::KeyRange first = cuda::key_range(call, item, tile_row);
  const cuda::KeyRange last = cuda::key_range(call, item, last_row);
  // Keys [low, high) are visible to some row, [all_low, all_high) to every row.
  const int low = first.low, high = last.high, all_low = last.low, all_high = max(first.high, 0);
  Blocks b;
  if (low >= high) return b;
  b.first = (high - 1) / kBlockKv;
  b.low = low / kBlockKv;
  b.count = b.first - b.low + 1;
  const int full_begin = (all_low + kBlockKv - 1) / kBlockKv, full_end = all_high / kBlockKv;
  if (full_begin >= full_end || call.mask_type != cuda::MaskType::none) {
    b.high_partials = b.partials = b.count;
  } else {
    b.high_partials = b.first + 1 - full_end;
    b.partials = b.high_partials + full_begin - b.low;
  }
  return b;
}

}  // namespace fovea::flash_sm80
