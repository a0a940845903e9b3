#include "src/backends/cudnn/lengths.hpp"

#include <cuda_runtime.h>

#include <cmath>

namespace fovea::cudnn {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerItem = 64;

__global__ void prepare_lengths_kernel(const void* given, bool wide, int batch, int seq_q,
                                       int seq_kv, int32_t* q_lengths, int32_t* kv_lengths) {
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= batch) return;
  const long long length =
      wide ? static_cast<const long long*>(given)[item] : static_cast<const int*>(given)[item];
  q_lengths[item] = seq_q;
  kv_lengths[item] = static_cast<int32_t>(length < 0 ? 0 : length < seq_kv ? length : seq_kv);
}

// One row of blocks per item; those of items with keys leave at once.
__global__ void clear_kernel(const int32_t* kv_lengths, uint16_t* out, int64_t out_elements,
                             float* lse, int64_t lse_elements) {
  const int64_t item = blockIdx.y;
  if (kv_lengths[item] != 0) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first; i < out_elements; i += step) out[item * out_elements + i] = 0;
  for (int64_t i = first; lse != nullptr && i < lse_elements; i += step)
    lse[item * lse_elements + i] = -INFINITY;
}

}  // namespace

int prepare_lengths(const void* given, bool wide, int64_t batch, int64_t seq_q, int64_t seq_kv,
                    int32_t* q_lengths, int32_t* kv_lengths, CUstream_st* stream) {
  const auto blocks = static_cast<unsigned>((batch + kThreads - 1) / kThreads);
  prepare_lengths_kernel<<<blocks, kThreads, 0, stream>>>(
      given, wide, static_cast<int>(batch), static_cast<int>(seq_q), static_cast<int>(seq_kv),
      q_lengths, kv_lengths);
  return cudaGetLastError();
}

int clear_items_without_keys(const int32_t* kv_lengths, int64_t batch, uint16_t* out,
                             int64_t row_elements, float* lse, int64_t lse_elements,
                             CUstream_st* stream) {
  const dim3 blocks(kBlocksPerItem, static_cast<unsigned>(batch));
  clear_kernel<<<blocks, kThreads, 0, stream>>>(kv_lengths, out, row_elements, lse, lse_elements);
  return cudaGetLastError();
}

}  // namespace fovea::cudnn
