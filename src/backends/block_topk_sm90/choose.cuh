// The largest scores of every row, as ascending lists.
#pragma once

#include "src/backends/block_topk_sm90/pool.cuh"

namespace fovea::block_topk_sm90 {

/// Order of floats as unsigned numbers; both zeros are one.
FOVEA_DEVICE uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits ^ (static_cast<uint32_t>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

/// One more where `key` reaches `trial`, in two instructions.
FOVEA_DEVICE void count_if(int& count, uint32_t key, uint32_t trial) {
  asm("{\n.reg .pred p;\nsetp.ge.u32 p, %1, %2;\n@p add.s32 %0, %0, 1;\n}"
      : "+r"(count)
      : "r"(key), "r"(trial));
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
/// A lane keeps kCached scores in registers; with kMore it reads others whenever it needs them.
template <int kCached, bool kMore>
FOVEA_DEVICE void choose_row(const float* scores, int columns, int first, int kept, int* out) {
  const int lane = threadIdx.x % 32;
  const auto for_more = [&](auto&& each) {
    if constexpr (kMore) {
#pragma unroll 1
      for (int column = first + 32 * kCached + lane; column < columns; column += 32)
        each(ordered(__ldcg(scores + column)));
    }
  };
  uint32_t keys[kCached], least = ~0u, most = 0;
#pragma unroll
  for (int n = 0; n < kCached; n++) {
    const int column = first + 32 * n + lane;
    keys[n] = 0;
    if (column < columns) {
      keys[n] = ordered(__ldcg(scores + column));
      least = min(least, keys[n]);
    }
    most = max(most, keys[n]);
  }
  for_more([&](uint32_t key) { least = min(least, key), most = max(most, key); });
  least = __reduce_min_sync(~0u, least);
  most = __reduce_max_sync(~0u, most);
  for (int n = lane; n < first; n += 32) out[n] = n;
  if (least <= ordered(-INFINITY) || most >= ordered(INFINITY)) {
    for (int n = first + lane; n < kept; n += 32) out[n] = n;
    return;
  }

  // The largest key that at least `wanted` keys reach lies in [low, high). Trials lie where a
  // straight line between the numbers of keys that reach either end, less `wanted`, is 0; an end
  // that has stayed counts half, and every fourth trial is the middle.
  const int wanted = kept - first;
  uint32_t low = least, high = most + 1;
  float over = static_cast<float>(columns - kept), under = static_cast<float>(wanted);
  bool ties = true, raised = false, lowered = false;
  int above = 0;
#pragma unroll 1
  for (int n = 1; high - low > 1; n++) {
    const uint32_t width = high - low;
    const float part = n % 4 == 0 ? 0.5f : over * cuda::reciprocal_fast(over + under);
    const auto step = __float2uint_rz(part * __uint2float_rz(width));
    const uint32_t trial = low + min(max(step, 1u), width - 1);
    int count = 0, other = 0;
#pragma unroll
    for (int i = 0; i < kCached; i += 2) {
      count_if(count, keys[i], trial);
      count_if(other, keys[i + 1], trial);
    }
    for_more([&](uint32_t key) { count_if(count, key, trial); });
    count = __reduce_add_sync(~0u, count + other);
    if (count == wanted) {
      low = trial - 1;
      ties = false;
      break;
    }
    if (count > wanted) {
      low = trial, over = static_cast<float>(count - wanted);
      if (raised) under *= 0.5f;
      raised = true, lowered = false;
    } else {
      high = trial, under = static_cast<float>(wanted - count), above = count;
      if (lowered) over *= 0.5f;
      raised = false, lowered = true;
    }
  }

  const uint32_t before = (1u << lane) - 1;
  int* to = out + first;
  const auto emit = [&](bool takes, int column) {
    const uint32_t taken = __ballot_sync(~0u, takes);
    if (takes) to[__popc(taken & before)] = column;
    to += __popc(taken);
  };
  // `each` tells which keys are taken.
  const auto emit_all = [&](auto&& each) {
#pragma unroll
    for (int n = 0; n < kCached; n++) emit(each(keys[n]), first + 32 * n + lane);
    if constexpr (kMore) {
#pragma unroll 1
      for (int from = first + 32 * kCached; from < columns; from += 32) {
        const int column = from + lane;
        emit(each(column < columns ? ordered(__ldcg(scores + column)) : 0), column);
      }
    }
  };
  if (!ties) {
    emit_all([&](uint32_t key) { return key > low; });
    return;
  }
  int left = wanted - above;  // of those that tie
  emit_all([&](uint32_t key) {
    const uint32_t tied = __ballot_sync(~0u, key == low);
    const bool takes = key > low || (key == low && __popc(tied & before) < left);
    left -= __popc(tied);
    return takes;
  });
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

/// One warp per row, see choose_row. Averages that are not finite have made scores that are not.
template <int kCached, bool kMore>
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(const __grid_constant__ Choose p) {
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  const int row = static_cast<int>(blockIdx.x * (kChooseThreads / 32) + threadIdx.x / 32);
  if (row >= p.all_rows) return;
  const int lane = threadIdx.x % 32;
  const int columns =
      p.call.kv_lengths == nullptr
          ? p.columns
          : divide_up(kv_length(p.call, row / p.rows / p.call.heads_q), p.call.block);
  const int first = min(columns, p.protected_blocks);
  const int kept = columns == p.columns
                       ? p.call.most
                       : min(kept_blocks(columns, first, p.call.sparsity), p.call.most);
  if (lane == 0) p.counts[row] = kept;
  int* out = p.indices + static_cast<long long>(row) * p.call.most;
  if (kept == columns)
    for (int n = lane; n < kept; n += 32) out[n] = n;
  else
    choose_row<kCached, kMore>(p.scores + static_cast<long long>(row) * p.columns, columns, first,
                               kept, out);
}

}  // namespace fovea::block_topk_sm90
