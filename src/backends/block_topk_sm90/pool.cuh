// Averages of 16 tokens, in float32, written as f16 with a power of two for each block.
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
  int count, cells, groups;  // heads of a batch item; cells and groups of each
  std::uint8_t* out;         // [batch, count, groups] tiles
  float* factors;            // [batch, count, groups, kGroupFactors]; NaN: an average is not finite
};
struct Pools {
  Call call;
  Pool of[2];           // queries, keys
  int planes_kv;        // heads of keys of all batch items
  int shared_by;        // heads of queries that read one
  int abreast;          // heads of keys that are averaged at the same time
  uint32_t items;       // of eight cells
  std::uint32_t* next;  // item that nobody has taken
  std::uint32_t* done;  // [planes_kv]: items of a head of keys and of its queries
};

inline constexpr int kPoolCells = 8;  // of an item: 128 tokens of a head
inline constexpr int kPoolThreads = 32 * kPoolCells;
/// Thread blocks of a multiprocessor; with 48 registers of a thread they leave room for one that
/// takes scores, whose ninth warp needs a third of the registers of a scheduler.
#ifndef FOVEA_TOPK_POOL_CTAS
#define FOVEA_TOPK_POOL_CTAS 2
#endif
inline constexpr int kPoolCtas = FOVEA_TOPK_POOL_CTAS;

/// Sixteen bytes that nothing reads again before they have left the caches.
FOVEA_DEVICE uint4 load_once(const std::uint16_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// One thread block sets counters to zero for a kernel that starts meanwhile.
static __global__ void clear_kernel(std::uint32_t* counters, int count) {
  cuda::allow_next_launch();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kPoolThreads) counters[i] = 0;
}

/// Items are taken in turn: all of `abreast` heads of keys and of their queries, then the next
/// heads; heads that are neighbours in memory together. One warp per cell; 16 lanes read one token,
/// the other 16 the next.
template <class Type, int kDim, int kCells>
__global__ void __launch_bounds__(kPoolThreads, 5)
    pool_kernel(const __grid_constant__ Pools pools) {
  using A = Arrangement<kDim, kCells>;
  __shared__ uint32_t exponents[2][kPoolCells], taken[2];
  __shared__ std::uint32_t* counter;  // of the last item; of the first thread alone
  // The counters are clear; only then may the next kernel look at them.
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  const Call& call = pools.call;
  const int lane = threadIdx.x % 32, chunk = lane % 16, half = lane / 16;
  const int warp = threadIdx.x / 32;
  const bool reads = 8 * chunk < call.head_dim;
  if (threadIdx.x == 0) {
    taken[1] = atomicAdd(pools.next, 1u);
    counter = nullptr;
  }
  __syncthreads();
  uint32_t item = taken[1];
#pragma unroll 1
  for (int turn = 0; item < pools.items; turn ^= 1) {
    const uint32_t q_items = divide_up(pools.of[0].cells, kPoolCells) * pools.shared_by;
    const uint32_t k_items = divide_up(pools.of[1].cells, kPoolCells);
    const uint32_t in_full = pools.abreast * (q_items + k_items);
    const int first_plane = static_cast<int>(item / in_full) * pools.abreast;
    const int planes = min(pools.abreast, pools.planes_kv - first_plane);
    uint32_t in_turn = item % in_full;
    const bool keys = in_turn >= planes * q_items;
    if (keys) in_turn -= planes * q_items;
    const int shared_by = keys ? 1 : pools.shared_by, heads = planes * shared_by;
    const int of_turn = static_cast<int>(in_turn) % heads;
    const int plane = first_plane * shared_by + of_turn;  // of the tensor
    const Pool& p = pools.of[keys];
    const int batch = plane / p.count, head = plane % p.count;
    const int cell = static_cast<int>(in_turn) / heads * kPoolCells + warp;
    const int end = keys ? kv_length(call, batch) : call.seq_q;
    const int tokens = min(kCellTokens, end - cell * kCellTokens);

    const auto* from = static_cast<const std::uint16_t*>(p.heads.data) + batch * p.heads.batch +
                       head * p.heads.head + (cell * kCellTokens + half) * p.heads.row + 8 * chunk;
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
    if (threadIdx.x == 0) taken[turn] = atomicAdd(pools.next, 1u);
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
    largest = __reduce_max_sync(~0u, largest);
    if (lane == 0) exponents[turn][warp] = largest >> 23;
    __syncthreads();
    item = taken[turn];
    // Everybody has written the averages of the item before this one.
    if (threadIdx.x == 0) {
      if (counter != nullptr) cuda::count_release(counter);
      counter = pools.done + plane / shared_by;
    }
    // The largest average of a block gets the exponent of 1, so that f16 keeps eleven bits of all
    // that reach 2^-14 of it.
    uint32_t exponent = 0;
#pragma unroll
    for (int i = 0; i < kCells; i++)
      exponent = max(exponent, exponents[turn][warp / kCells * kCells + i]);
    const uint32_t shift = min(exponent, 253u);
    const float up = __uint_as_float((254u - shift) << 23);
    if (cell >= p.cells) continue;
    const long long group = static_cast<long long>(plane) * p.groups + cell / kGroupCells;
    const int in_group = cell % kGroupCells;
    if (half == 0 && 8 * chunk < kDim) {
      uint4 packed;
      packed.x = cuda::F16::pack(mean[0] * up, mean[1] * up);
      packed.y = cuda::F16::pack(mean[2] * up, mean[3] * up);
      packed.z = cuda::F16::pack(mean[4] * up, mean[5] * up);
      packed.w = cuda::F16::pack(mean[6] * up, mean[7] * up);
      const int row = keys ? A::key_row(in_group) : A::query_row(in_group);
      *reinterpret_cast<uint4*>(p.out + group * A::kGroupBytes + A::offset(row, chunk)) = packed;
    }
    if (lane == 0 && in_group % kCells == 0)
      p.factors[group * kGroupFactors + in_group / kCells] =
          __uint_as_float(exponent == 255 ? 0x7fffffffu : shift << 23);
  }
  __syncthreads();
  if (threadIdx.x == 0 && counter != nullptr) cuda::count_release(counter);
}

}  // namespace fovea::block_topk_sm90
