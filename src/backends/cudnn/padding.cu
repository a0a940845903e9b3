#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "src/backends/cudnn/padding.hpp"

namespace fovea::cudnn {
namespace {

constexpr int kThreads = 256, kUnit = 8;  // elements that move at once

struct Rows {
  const uint4* from;
  uint4* to;
  std::int64_t batch, seq, head;  // strides of `from` in units
  int units;                      // of a head
};

/// A value out of range counts as the nearest one in it.
__device__ int length_of(const void* lengths, bool wide, int b, int seq) {
  const long long length =
      wide ? static_cast<const long long*>(lengths)[b] : static_cast<const int*>(lengths)[b];
  return static_cast<int>(min(max(length, 0ll), static_cast<long long>(seq)));
}

/// blockIdx.y: batch item, blockIdx.z: 0 for k, 1 for v.
__global__ void __launch_bounds__(kThreads)
    copy_visible(Rows k, Rows v, int seq, int heads, const void* lengths, bool wide, int seq_q,
                 int* q_lengths, int* kv_lengths) {
  const Rows& rows = blockIdx.z == 0 ? k : v;
  const std::int64_t b = blockIdx.y, at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int length = length_of(lengths, wide, blockIdx.y, seq);
  if (blockIdx.z == 0 && at == 0) {
    q_lengths[b] = seq_q;
    kv_lengths[b] = length > 0 ? length : 1;
  }
  const std::int64_t per_item = std::int64_t{seq} * heads * rows.units;
  if (at >= per_item) return;
  const std::int64_t row = at / rows.units, unit = at - row * rows.units;
  const std::int64_t s = row / heads, h = row - s * heads;
  uint4 value{};
  if (s < length) value = rows.from[b * rows.batch + s * rows.seq + h * rows.head + unit];
  rows.to[b * per_item + at] = value;
}

/// Rows of items without keys, a row of the output by one thread: `units` of it, if any LSE too.
__global__ void __launch_bounds__(kThreads)
    clear_empty(uint4* out, float* lse, std::int64_t rows, int units, const void* lengths,
                bool wide, int seq) {
  if (length_of(lengths, wide, blockIdx.y, seq) > 0) return;
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= rows) return;
  const std::int64_t row = blockIdx.y * rows + at;
  for (int n = 0; n < units; n++) out[row * units + n] = uint4{};
  if (lse) lse[row] = -INFINITY;
}

Rows rows_of(const void* from, void* to, const Strides& strides, std::int64_t dim) {
  return {static_cast<const uint4*>(from),
          static_cast<uint4*>(to),
          strides.batch / kUnit,
          strides.seq / kUnit,
          strides.head / kUnit,
          static_cast<int>(dim / kUnit)};
}

unsigned blocks_for(std::int64_t work) {
  return static_cast<unsigned>((work + kThreads - 1) / kThreads);
}

}  // namespace

int launch_padding(const Problem& p, const PaddingCall& call, CUstream_st* stream) {
  const PaddingLayout layout = padding_layout(p);
  char* const memory = static_cast<char*>(call.memory);
  const Rows k = rows_of(call.k, memory + layout.k, p.k_strides, p.head_dim);
  const Rows v = rows_of(call.v, memory + layout.v, p.v_strides, p.dim_v);
  const std::int64_t units = std::max(k.units, v.units);
  const dim3 grid(blocks_for(p.seq_kv * p.heads_kv * units), static_cast<unsigned>(p.batch), 2);
  copy_visible<<<grid, kThreads, 0, stream>>>(k, v, static_cast<int>(p.seq_kv),
                                              static_cast<int>(p.heads_kv), call.lengths,
                                              call.int64_lengths, static_cast<int>(p.seq_q),
                                              reinterpret_cast<int*>(memory + layout.q_lengths),
                                              reinterpret_cast<int*>(memory + layout.kv_lengths));
  return cudaGetLastError();
}

int launch_empty_items(const Problem& p, const PaddingCall& call, CUstream_st* stream) {
  const std::int64_t rows = p.heads_q * p.seq_q;
  const dim3 grid(blocks_for(rows), static_cast<unsigned>(p.batch));
  clear_empty<<<grid, kThreads, 0, stream>>>(static_cast<uint4*>(call.out), call.lse, rows,
                                             static_cast<int>(p.dim_v / kUnit), call.lengths,
                                             call.int64_lengths, static_cast<int>(p.seq_kv));
  return cudaGetLastError();
}

}  // namespace fovea::cudnn
