// Scores again, warp by warp, from memory: when probabilities have overflowed, S and its K tile are
// gone.
#pragma once

#include "src/backends/flash_sm90/row_pair.cuh"
#include "src/cuda/mma.cuh"

namespace fovea::flash_sm90 {

/// S of this warp's 16 rows of the 64-row query tile at shared address `q` against visited block i,
/// every key of which is visible. mma.sync leaves a warp's rows in the registers where wgmma leaves
/// them, and a warp may do this alone.
template <Key kKey>
FOVEA_DEVICE void warp_scores(float (&s)[Traits<kKey>::kScores], uint32_t q, const Params& p,
                              const Task& t, int i) {
  using T = Traits<kKey>;
  const uint32_t thread = cuda::opaque(threadIdx.x % 128), lane = thread % 32;
  const uint32_t q_row = thread / 32 * 16 + lane % 16, q_chunk = lane / 16;
  // Row lane / 4 of the first block, and in a pair of the second one too.
  constexpr int kRows = T::kPairs ? T::kBlockKv / 2 : T::kBlockKv;
  // The caller's lists may hold anything; a block beyond the keys is read as the first one.
  const auto rows_of = [&](int block) {
    const unsigned last = static_cast<unsigned>(t.kv_length) / kRows;
    const int64_t first = static_cast<unsigned>(block) < last ? block * kRows : 0;
    return static_cast<const uint16_t*>(p.k) + t.batch * p.k_batch +
           (t.kv_start + first + static_cast<int>(lane / 4)) * p.k_row +
           divide(t.head, p.kv_group) * p.k_head;
  };
  const uint16_t* k[T::kPairs ? 2 : 1];
  if constexpr (T::kRowPair) {
    int number[2];
    row_tile<kKey>(p, t, i, number);
    k[0] = rows_of(number[0]);
    k[1] = rows_of(number[1]);
  } else if constexpr (T::kPairs) {
    k[0] = rows_of(pair_block<kKey>(p, t, i, 0));
    k[1] = rows_of(pair_block<kKey>(p, t, i, 1));
  } else {
    k[0] = rows_of(block_of<kKey>(p, t, i));
  }
  const auto pair = [&](int row, int column) {
    const uint16_t* from = k[T::kPairs ? row / kRows : 0] + row % kRows * p.k_row + column;
    return column < p.head_dim ? *reinterpret_cast<const uint32_t*>(from) : 0u;
  };
#pragma unroll
  for (int n = 0; n < T::kScores; n++) s[n] = 0.f;
#pragma unroll 1
  for (int step = 0; step < T::kHeadDim / 16; step++) {
    uint32_t a[4];
    cuda::ldmatrix(a, q + T::Tile::offset(q_row, 2 * step + q_chunk, 64));
    const int column = 16 * step + 2 * static_cast<int>(lane % 4);
#pragma unroll
    for (int j = 0; j < T::kBlockKv / 8; j++) {
      float d[4] = {s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]};
      cuda::mma<typename T::Type>(d, a, pair(8 * j, column), pair(8 * j, column + 8));
#pragma unroll
      for (int e = 0; e < 4; e++) s[4 * j + e] = d[e];
    }
  }
}

}  // namespace fovea::flash_sm90
