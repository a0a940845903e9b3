// The largest scores of every row, as ascending lists.
#pragma once

#include "src/backends/block_topk_sm90/pool.cuh"

namespace fovea::block_topk_sm90 {

/// Order of floats as unsigned numbers; both zeros are one.
FOVEA_DEVICE uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

/// Blocks that a row keeps of `columns`, the protected ones included; as topk_count on the host.
FOVEA_DEVICE int kept_blocks(int columns, int first, double sparsity) {
  constexpr int kBudgetStep = 8;
  const int blocks = columns - first;
  if (blocks == 0) return columns;
  const double share = __dmul_rn(__dadd_rn(1.0, -sparsity), blocks);
  const int wanted = static_cast<int>(ceil(__dadd_rn(share, -__dmul_rn(1e-9, blocks))));
  return first + min(blocks, divide_up(max(wanted, 1), kBudgetStep) * kBudgetStep);
}

/// One warp: writes the `kept` best of `columns` scores, of which the first `first` are in any
/// case. Ties go to the block that comes first; scores that are not finite leave the first blocks.
/// A lane keeps kCached scores in registers and reads others whenever it needs them.
template <int kCached>
FOVEA_DEVICE void choose_row(const float* scores, int columns, int first, int kept, int* out) {
  const int lane = threadIdx.x % 32;
  uint32_t keys[kCached];
  bool finite = true;
#pragma unroll
  for (int n = 0; n < kCached; n++) {
    const int column = first + 32 * n + lane;
    const float score = column < columns ? __ldcg(scores + column) : -INFINITY;
    finite = finite && (column >= columns || isfinite(score));
    keys[n] = ordered(score);
  }
  for (int column = first + 32 * kCached + lane; column < columns; column += 32)
    finite = finite && isfinite(__ldcg(scores + column));
  if (!__all_sync(~0u, finite)) {
    for (int n = lane; n < kept; n += 32) out[n] = n;
    return;
  }
  for (int n = lane; n < first; n += 32) out[n] = n;

  uint32_t least = ~0u, most = 0;
#pragma unroll
  for (int n = 0; n < kCached; n++)
    if (first + 32 * n + lane < columns) least = min(least, keys[n]), most = max(most, keys[n]);
  for (int column = first + 32 * kCached + lane; column < columns; column += 32) {
    const uint32_t key = ordered(__ldcg(scores + column));
    least = min(least, key), most = max(most, key);
  }
  least = __reduce_min_sync(~0u, least);
  most = __reduce_max_sync(~0u, most);

  // The largest key that at least `wanted` keys reach, bit by bit from the first in which keys
  // differ, and how many exceed it. Where `wanted` keys reach a trial, the rest cannot matter.
  const int wanted = kept - first;
  const int differing = 32 - __clz(static_cast<int>(least ^ most));
  uint32_t limit = differing == 32 ? 0 : most >> differing << differing;
  int above = 0;
#pragma unroll 1
  for (int bit = differing - 1; bit >= 0; bit--) {
    const uint32_t trial = limit | 1u << bit;
    int reached = 0;
#pragma unroll
    for (int n = 0; n < kCached; n++) reached += keys[n] >= trial;
    for (int column = first + 32 * kCached + lane; column < columns; column += 32)
      reached += ordered(__ldcg(scores + column)) >= trial;
    reached = __reduce_add_sync(~0u, reached);
    if (reached == wanted) {
      limit = trial - 1;
      above = wanted;
      break;
    }
    if (reached > wanted)
      limit = trial;
    else
      above = reached;
  }

  int ties = wanted - above, at = first;
  const uint32_t before = (1u << lane) - 1;
  const auto emit = [&](uint32_t key, int column) {
    const uint32_t tied = __ballot_sync(~0u, key == limit);
    const bool takes = key > limit || (key == limit && __popc(tied & before) < ties);
    const uint32_t taken = __ballot_sync(~0u, takes);
    if (takes) out[at + __popc(taken & before)] = column;
    ties = max(ties - __popc(tied), 0);
    at += __popc(taken);
  };
#pragma unroll
  for (int n = 0; n < kCached; n++) emit(keys[n], first + 32 * n + lane);
  for (int from = first + 32 * kCached; from < columns; from += 32) {
    const int column = from + lane;
    emit(ordered(column < columns ? __ldcg(scores + column) : -INFINITY), column);
  }
}
FOVEA_DEVICE void choose_row(const float* scores, int columns, int first, int kept, int* out) {
  if (columns - first <= 8 * 32)
    choose_row<8>(scores, columns, first, kept, out);
  else
    choose_row<16>(scores, columns, first, kept, out);
}

struct Choose {
  Call call;
  const float* scores;
  int *counts, *indices;
  int rows, columns;     // of a head of queries
  int protected_blocks;  // columns that every row keeps
  int all_rows;
};

inline constexpr int kChooseThreads = 256;

/// One warp per row. Averages that are not finite have made scores that are not.
static __global__ void __launch_bounds__(kChooseThreads)
    choose_kernel(const __grid_constant__ Choose p) {
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  const int row = static_cast<int>(blockIdx.x * (kChooseThreads / 32) + threadIdx.x / 32);
  if (row >= p.all_rows) return;
  const int lane = threadIdx.x % 32;
  const int columns = divide_up(kv_length(p.call, row / p.rows / p.call.heads_q), p.call.block);
  const int first = min(columns, p.protected_blocks);
  const int kept = min(kept_blocks(columns, first, p.call.sparsity), p.call.most);
  if (lane == 0) p.counts[row] = kept;
  int* out = p.indices + static_cast<long long>(row) * p.call.most;
  if (kept == columns)
    for (int n = lane; n < kept; n += 32) out[n] = n;
  else
    choose_row(p.scores + static_cast<long long>(row) * p.columns, columns, first, kept, out);
}

}  // namespace fovea::block_topk_sm90
