// Averages of 16 tokens, in float32, written as f16; blocks that f16 does not hold well get a power
// of two as a factor.
#pragma once

#include "src/backends/block_topk_sm90/arrangement.cuh"
#include "src/backends/block_topk_sm90/select.hpp"
#include "src/cuda/precision.cuh"

namespace fovea::block_topk_sm90 {

FOVEA_DEVICE int divide_up(int a, int b) { return (a + b - 1) / b; }

/// Keys of a batch item; a device value is clamped to the tensor.
FOVEA_DEVICE int kv_length(const Call& c, int batch) {
  if (c.kv_lengths == nullptr) return c.seq_kv;
  const long long n = c.kv_lengths_wide ? static_cast<const long long*>(c.kv_lengths)[batch]
                                        : static_cast<const int*>(c.kv_lengths)[batch];
  return static_cast<int>(min(max(n, 0LL), static_cast<long long>(c.seq_kv)));
}

struct Pool {
  Heads heads;
  float scale;        // of the averages
  int count, cells;   // heads of a batch item; cells of each
  long long room;     // cells of whole groups of a head
  std::uint8_t* out;  // [batch, count, groups] tiles
  float* factors;     // [batch, count, room / 4]; NaN: an average is not finite
};
struct Pools {
  Call call;
  Pool of[2];  // queries, keys
};

inline constexpr int kPoolCells = 8;  // of a thread block: 128 tokens of a head
inline constexpr int kPoolThreads = 32 * kPoolCells;

/// Sixteen bytes that leave the caches first.
FOVEA_DEVICE uint4 load_once(const std::uint16_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from), "l"(cuda::kEvictFirst));
  return v;
}
/// Sixteen bytes that leave the L2 cache last: `score` reads them next.
FOVEA_DEVICE void store_kept(std::uint8_t* to, uint4 v) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w), "l"(cuda::kEvictLast)
               : "memory");
}

/// Blocks x: heads of queries, then heads of keys, neighbours sharing pages of memory in [B,S,H,D];
/// y: eight cells; z: batch. One warp per cell; 16 lanes read one token, the other 16 the next.
template <class Type, int kDim, int kCells>
__global__ void __launch_bounds__(kPoolThreads, 5)
    pool_kernel(const __grid_constant__ Pools pools) {
  using A = Arrangement<kDim, kCells>;
  __shared__ uint32_t exponents[kPoolCells];
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  const Call& call = pools.call;
  const int x_block = static_cast<int>(blockIdx.x), batch = static_cast<int>(blockIdx.z);
  const bool keys = x_block >= pools.of[0].count;
  const Pool& p = pools.of[keys];
  const int head = keys ? x_block - pools.of[0].count : x_block;
  const int lane = threadIdx.x % 32, chunk = lane % 16, half = lane / 16;
  const int warp = threadIdx.x / 32, cell = static_cast<int>(blockIdx.y) * kPoolCells + warp;
  if (cell - warp >= p.cells) return;
  const int end = keys ? kv_length(call, batch) : call.seq_q;
  const int tokens = min(kCellTokens, end - cell * kCellTokens);

  const auto* from = static_cast<const std::uint16_t*>(p.heads.data) + batch * p.heads.batch +
                     head * p.heads.head + (cell * kCellTokens + half) * p.heads.row + 8 * chunk;
  const bool reads = 8 * chunk < call.head_dim;
  uint4 x[kCellTokens / 2] = {};
  if (tokens == kCellTokens) {
#pragma unroll
    for (int t = 0; t < kCellTokens / 2; t++, from += 2 * p.heads.row)
      if (reads) x[t] = load_once(from);
  } else {
#pragma unroll
    for (int t = 0; t < kCellTokens / 2; t++, from += 2 * p.heads.row)
      if (reads && 2 * t + half < tokens) x[t] = load_once(from);
  }
  float mean[8] = {};
#pragma unroll
  for (int t = 0; t < kCellTokens / 2; t++) {
    const uint32_t words[4] = {x[t].x, x[t].y, x[t].z, x[t].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      mean[2 * i] += Type::widen(words[i] & 0xffffu);
      mean[2 * i + 1] += Type::widen(words[i] >> 16);
    }
  }
  const float share = p.scale / static_cast<float>(max(tokens, 1));
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    mean[i] = (mean[i] + __shfl_xor_sync(~0u, mean[i], 16)) * share;
    largest = max(largest, __float_as_uint(mean[i]) & 0x7fffffffu);
  }
  largest = __reduce_max_sync(~0u, largest);
  if (lane == 0) exponents[warp] = largest >> 23;
  __syncthreads();
  // f16 holds most averages as they are. Where the largest of a block is below 2^-5 or has 2^15, it
  // gets the exponent of 1, so that f16 keeps eleven bits of all that reach 2^-14 of it.
  uint32_t exponent = 0;
#pragma unroll
  for (int i = 0; i < kCells; i++) exponent = max(exponent, exponents[warp / kCells * kCells + i]);
  const bool plain = exponent >= 127 - 5 && exponent < 127 + 15;
  const uint32_t shift = plain ? 127 : min(exponent, 253u);
  const float up = __uint_as_float((254u - shift) << 23);
  if (cell >= p.cells) return;
  const long long before = (static_cast<long long>(batch) * p.count + head) * p.room;
  if (half == 0 && 8 * chunk < kDim) {
    uint4 packed;
    packed.x = cuda::F16::pack(mean[0] * up, mean[1] * up);
    packed.y = cuda::F16::pack(mean[2] * up, mean[3] * up);
    packed.z = cuda::F16::pack(mean[4] * up, mean[5] * up);
    packed.w = cuda::F16::pack(mean[6] * up, mean[7] * up);
    store_kept(p.out + before * (2 * kDim) +
                   (keys ? A::key_offset(cell, chunk) : A::query_offset(cell, chunk)),
               packed);
  }
  if (lane == 0 && cell % kCells == 0)
    p.factors[before / 4 + (keys ? A::key_factor(cell / kCells) : A::query_factor(cell / kCells))] =
        __uint_as_float(exponent == 255 ? 0x7fffffffu : shift << 23);
}

}  // namespace fovea::block_topk_sm90
