#include <cuda_runtime.h>

#include <cmath>

#include "src/backends/flash_sm90/auxiliary.hpp"
#include "src/cuda/launch_attributes.hpp"
#include "src/cuda/ptx.cuh"

namespace fovea::flash_sm90 {
namespace {

struct KeyBitsJob {
  const std::uint8_t* mask;
  std::int64_t mask_batch, mask_head;
  const void* lengths;
  int lengths_wide;
  int heads, seq_kv, blocks, block_kv;
  std::uint32_t* bits;
  int *entries, *counts;
};

/// One thread block per key row. First every warp classifies blocks (0 hidden, 1 partial, 2 full;
/// kept in the spare last word of the bits), then one warp lists the visible ones, partial ones
/// first.
__global__ void pack_key_bits_kernel(KeyBitsJob job) {
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  const int row = blockIdx.x, batch = row / job.heads, head = row % job.heads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const std::uint8_t* mask = job.mask + batch * job.mask_batch + head * job.mask_head;
  int length = job.seq_kv;
  if (job.lengths) {
    const long long n = job.lengths_wide ? static_cast<const long long*>(job.lengths)[batch]
                                         : static_cast<const int*>(job.lengths)[batch];
    length = static_cast<int>(n < 0 ? 0 : n < length ? n : length);
  }
  std::uint32_t* bits = job.bits + static_cast<std::int64_t>(row) * job.blocks * kKeyWords;
  int* entries = job.entries + static_cast<std::int64_t>(row) * job.blocks;
  for (int i = warp; i < job.blocks; i += warps) {
    const int block = job.blocks - 1 - i;
    bool any = false, all = true;
    for (int word = 0; word < kKeyWords - 1; word++) {
      const int column = word * 32 + lane, key = block * job.block_kv + column;
      const bool inside = column < job.block_kv;
      const bool visible = inside && key < length && mask[key] != 0;
      const std::uint32_t ballot = __ballot_sync(~0u, visible);
      any |= ballot != 0;
      all &= ballot == __ballot_sync(~0u, inside);
      if (lane == 0) bits[static_cast<std::int64_t>(block) * kKeyWords + word] = ballot;
    }
    if (lane == 0)
      bits[static_cast<std::int64_t>(block) * kKeyWords + kKeyWords - 1] = any ? (all ? 2 : 1) : 0;
  }
  __syncthreads();
  if (warp != 0) return;
  int count = 0, partials = 0;
  for (std::uint32_t wanted = 1; wanted <= 2; wanted++) {
    for (int from = 0; from < job.blocks; from += 32) {
      const int block = job.blocks - 1 - (from + lane);
      const bool take =
          block >= 0 &&
          bits[static_cast<std::int64_t>(block) * kKeyWords + kKeyWords - 1] == wanted;
      const std::uint32_t taken = __ballot_sync(~0u, take);
      if (take) entries[count + __popc(taken & ((1u << lane) - 1))] = block;
      count += __popc(taken);
    }
    if (wanted == 1) partials = count;
  }
  if (lane == 0) {
    if (count == 0) {  // one block with every key hidden
      entries[0] = 0;
      count = partials = 1;
    }
    job.counts[2 * row] = count;
    job.counts[2 * row + 1] = partials;
  }
}

__global__ void fill_empty_kernel(Tensor out, int out_float, int dim_v, int rows, int heads,
                                  int batch, float* lse) {
  const std::int64_t total = static_cast<std::int64_t>(batch) * heads * rows * dim_v;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < total;
       i += step) {
    const std::int64_t column = i % dim_v, line = i / dim_v, row = line % rows;
    const std::int64_t head = line / rows % heads, item = line / rows / heads;
    const std::int64_t at = item * out.batch + head * out.head + row * out.row + column;
    if (out_float)
      static_cast<float*>(out.data)[at] = 0.f;
    else
      static_cast<std::uint16_t*>(out.data)[at] = 0;
    if (lse && column == 0) lse[line] = -INFINITY;
  }
}

}  // namespace

int pack_key_bits(const Problem& problem, const Arguments& arguments, int block_kv,
                  std::uint32_t* bits, int* entries, int* counts, CUstream_st* stream) {
  KeyBitsJob job{};
  job.mask = arguments.key_mask;
  job.mask_batch = arguments.key_mask_batch;
  job.mask_head = arguments.key_mask_head;
  job.lengths = arguments.kv_lengths;
  job.lengths_wide = arguments.kv_lengths_int64;
  job.heads = static_cast<int>(problem.key_mask_heads);
  job.seq_kv = static_cast<int>(problem.seq_kv);
  job.block_kv = block_kv;
  job.blocks = (job.seq_kv + block_kv - 1) / block_kv;
  job.bits = bits;
  job.entries = entries;
  job.counts = counts;
  const auto rows = static_cast<unsigned>(problem.key_mask_batches * problem.key_mask_heads);
  cuda::LaunchAttributes attributes;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(rows);
  config.blockDim = dim3(1024);
  config.stream = stream;
  attributes.add_to(config);
  return cudaLaunchKernelEx(&config, pack_key_bits_kernel, job);
}

int fill_empty(const Problem& problem, const Arguments& arguments, CUstream_st* stream) {
  const auto rows = static_cast<int>(problem.seq_q), heads = static_cast<int>(problem.heads_q);
  const int batch = problem.packed ? 1 : static_cast<int>(problem.batch);
  fill_empty_kernel<<<512, 256, 0, stream>>>(arguments.out, problem.out_float,
                                             static_cast<int>(problem.dim_v), rows, heads, batch,
                                             arguments.lse);
  return cudaGetLastError();
}

}  // namespace fovea::flash_sm90
