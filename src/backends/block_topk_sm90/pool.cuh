// Averages of 16 tokens, in float32, written as f16 with a power of two beside them.
#pragma once

#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/backends/block_topk_sm90/select.hpp"
#include "src/cuda/precision.cuh"

namespace fovea::block_topk_sm90 {

/// Keys of a batch item; a device value is clamped to the tensor.
FOVEA_DEVICE int kv_length(const Call& c, int batch) {
  if (c.kv_lengths == nullptr) return c.seq_kv;
  const long long n = c.kv_lengths_wide ? static_cast<const long long*>(c.kv_lengths)[batch]
                                        : static_cast<const int*>(c.kv_lengths)[batch];
  return static_cast<int>(min(max(n, 0LL), static_cast<long long>(c.seq_kv)));
}

struct Pool {
  Heads heads;
  int count, cells;    // heads, cells of each
  std::uint16_t* out;  // [batch, count, cells, kDim]
  float* scales;       // [batch, count, cells]; NaN where an average is not finite
};
struct Pools {
  Call call;
  Pool of[2];    // queries, keys
  int q_blocks;  // thread blocks of the queries, which come first
};

inline constexpr int kPoolThreads = 256;

/// One warp per cell, neighbouring warps take neighbouring heads, which share lines of memory in
/// [B,S,H,D]. 16 lanes read one token, the other 16 the next.
template <class Type, int kDim>
__global__ void __launch_bounds__(kPoolThreads) pool_kernel(const __grid_constant__ Pools pools) {
  const Call& call = pools.call;
  const bool keys = static_cast<int>(blockIdx.x) >= pools.q_blocks;
  const Pool& p = pools.of[keys];
  const int block = static_cast<int>(blockIdx.x) - (keys ? pools.q_blocks : 0);
  const int item = block * (kPoolThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, chunk = lane % 16, half = lane / 16;
  const int head = item % p.count, cell = item / p.count % p.cells;
  const int batch = item / p.count / p.cells;
  if (batch >= call.batch) return;
  const int end = keys ? kv_length(call, batch) : call.seq_q;
  const int tokens = min(kCellTokens, end - cell * kCellTokens);

  const auto* from = static_cast<const std::uint16_t*>(p.heads.data) + batch * p.heads.batch +
                     head * p.heads.head + (cell * kCellTokens + half) * p.heads.row + 8 * chunk;
  uint4 x[kCellTokens / 2];
#pragma unroll
  for (int t = 0; t < kCellTokens / 2; t++) {
    x[t] = uint4{};
    if (8 * chunk < call.head_dim && 2 * t + half < tokens)
      x[t] = __ldg(reinterpret_cast<const uint4*>(from + 2 * t * p.heads.row));
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
  const float share = 1.f / static_cast<float>(max(tokens, 1));
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    mean[i] = (mean[i] + __shfl_xor_sync(~0u, mean[i], 16)) * share;
    largest = max(largest, __float_as_uint(mean[i]) & 0x7fffffffu);
  }
  // The largest average gets the exponent of 1 or 2, so that f16 keeps its eleven bits.
  const uint32_t exponent = __reduce_max_sync(~0u, largest) >> 23;
  const uint32_t shift = min(exponent, 253u);
  const float up = __uint_as_float((254u - shift) << 23);
  const long long row = (static_cast<long long>(batch) * p.count + head) * p.cells + cell;
  if (half == 0 && 8 * chunk < kDim) {
    uint4 packed;
    packed.x = cuda::F16::pack(mean[0] * up, mean[1] * up);
    packed.y = cuda::F16::pack(mean[2] * up, mean[3] * up);
    packed.z = cuda::F16::pack(mean[4] * up, mean[5] * up);
    packed.w = cuda::F16::pack(mean[6] * up, mean[7] * up);
    reinterpret_cast<uint4*>(p.out + row * kDim)[chunk] = packed;
  }
  if (lane == 0)
    p.scales[row] = exponent == 255 ? __uint_as_float(0x7fffffffu) : __uint_as_float(shift << 23);
}

}  // namespace fovea::block_topk_sm90
