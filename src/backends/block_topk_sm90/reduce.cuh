// A thread's share of a product of averages, added up to the scores of pairs of blocks.
#pragma once

#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/cuda/ptx.cuh"

namespace fovea::block_topk_sm90 {

/// A score is a log2-sum-exp2 over the pairs of cells of two blocks. Every pair of blocks is added
/// up by the same threads in the same order, so that equal blocks tie to the bit.
template <int kCells>
struct Reduce {
  static constexpr int kValues = kKeyCells / 2;   // of a thread
  static constexpr int kOwn = 32 / kCells;        // blocks of keys in a thread's columns
  static constexpr int kTerms = kValues / kOwn;   // of each
  static constexpr int kRowLanes = kCells / 2;    // lanes / 4 that share a block of queries
  static constexpr int kEnds = kOwn / kRowLanes;  // blocks whose score a thread ends with
  // What the plain sum can hold: terms below 2^-126 are lost, which is 2^-30 of the least sum.
  static constexpr float kLeast = 0x1p-90f, kMost = 0x1p120f;

  /// Of its block, the cell of keys that term t belongs to; its cell of queries is 2 x (lane / 4 %
  /// kRowLanes) + t / 2 % 2.
  FOVEA_DEVICE static constexpr int key_cell(int t) { return t / 4 * 2 + t % 2; }

  /// The largest of a block pair, and the sum, in all its lanes.
  FOVEA_DEVICE static float maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 4));
    return kRowLanes == 4 ? fmaxf(x, __shfl_xor_sync(~0u, x, 8)) : x;
  }
  FOVEA_DEVICE static float total(float x) {
    x += __shfl_xor_sync(~0u, x, 4);
    return kRowLanes == 4 ? x + __shfl_xor_sync(~0u, x, 8) : x;
  }

  /// Adds up over the lanes of a block of queries. Result m belongs to block `mine(m)` of the
  /// thread's.
  FOVEA_DEVICE static void fold(float (&result)[kEnds], const float (&sum)[kOwn]) {
    const bool upper = threadIdx.x & 4, last = threadIdx.x & 8;
    float half[kOwn / 2];
#pragma unroll
    for (int m = 0; m < kOwn / 2; m++) {
      const float other = upper ? sum[m] : sum[kOwn / 2 + m];
      half[m] = (upper ? sum[kOwn / 2 + m] : sum[m]) + __shfl_xor_sync(~0u, other, 4);
    }
    if constexpr (kRowLanes == 4) {
      result[0] = (last ? half[1] : half[0]) + __shfl_xor_sync(~0u, last ? half[0] : half[1], 8);
    } else {
#pragma unroll
      for (int m = 0; m < kEnds; m++) result[m] = half[m];
    }
  }
  FOVEA_DEVICE static int mine(int m) {
    const int upper = threadIdx.x / 4 % 2, last = threadIdx.x / 8 % 2;
    return upper * (kOwn / 2) + (kRowLanes == 4 ? last : m);
  }

  /// The sums of a thread's terms.
  FOVEA_DEVICE static void add(float (&sum)[kOwn], const float (&term)[kValues]) {
#pragma unroll
    for (int k = 0; k < kOwn; k++) {
      float part[2] = {term[k * kTerms], term[k * kTerms + 1]};
#pragma unroll
      for (int t = 2; t < kTerms; t++) part[t % 2] += term[k * kTerms + t];
      sum[k] = part[0] + part[1];
    }
  }
};

}  // namespace fovea::block_topk_sm90
