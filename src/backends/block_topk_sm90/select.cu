// Launches: averages, and scores and the choice beside them.
#include <cuda_runtime.h>

#include <algorithm>

#include "src/backends/block_topk_sm90/score.cuh"
#include "src/backends/block_topk_sm90/select.hpp"

namespace fovea::block_topk_sm90 {
namespace {

struct Kernels {
  void (*pool)(Pools);
  void (*score)(Score);
  uint32_t shared_bytes;
};
template <class Type, int kDim, int kCells>
constexpr Kernels kKernels = {&pool_kernel<Type, kDim, kCells>, &score_kernel<kDim, kCells>,
                              Ring<kDim>::kBytes};
template <class Type>
Kernels kernels_of(const Call& call) {
  const bool wide = padded_dim(call.head_dim) == 128;
  if (call.block == 128) return wide ? kKernels<Type, 128, 8> : kKernels<Type, 64, 8>;
  return wide ? kKernels<Type, 128, 4> : kKernels<Type, 64, 4>;
}
Kernels kernels_of(const Call& call) {
  return call.f16 ? kernels_of<cuda::F16>(call) : kernels_of<cuda::Bf16>(call);
}

int groups(int seq) { return ceil_div(seq, kGroupCells * kCellTokens); }

/// Items of averages that a head of keys and its queries take.
std::uint32_t items_of_head(const Call& call) {
  constexpr int kTokens = kPoolCells * kCellTokens;
  return static_cast<std::uint32_t>(ceil_div(call.seq_q, kTokens)) *
             static_cast<std::uint32_t>(call.heads_q / call.heads_kv) +
         static_cast<std::uint32_t>(ceil_div(call.seq_kv, kTokens));
}

/// Heads of queries whose averages are taken at the same time: few, so that scores start early;
/// more than one, so that memory is read in long pieces.
#ifndef FOVEA_TOPK_ABREAST
#define FOVEA_TOPK_ABREAST 4
#endif
constexpr int kHeadsAbreast = FOVEA_TOPK_ABREAST;

/// A kernel that may start while the one before it still runs.
template <class Argument>
cudaError_t launch_beside(void (*kernel)(Argument), const Argument& argument, unsigned blocks,
                          int threads, uint32_t shared_bytes, int cluster, CUstream_st* stream,
                          bool beside = true) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = beside;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, argument);
}

/// Thread blocks of a head share what they read if that leaves few of them without work.
int cluster_size(int q_tiles) { return q_tiles % 2 == 0 || q_tiles > 8 ? 2 : 1; }

}  // namespace

int prepare() {
  // Kernels run side by side only with the same split of the memory.
  const auto most_shared = [](const void* kernel) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  };
  cudaError_t error = most_shared(reinterpret_cast<const void*>(&clear_kernel));
  if (error != cudaSuccess) return error;
  for (const Kernels& kernels :
       {kKernels<cuda::F16, 128, 8>, kKernels<cuda::F16, 64, 8>, kKernels<cuda::F16, 128, 4>,
        kKernels<cuda::F16, 64, 4>, kKernels<cuda::Bf16, 128, 8>, kKernels<cuda::Bf16, 64, 8>,
        kKernels<cuda::Bf16, 128, 4>, kKernels<cuda::Bf16, 64, 4>}) {
    const auto* score = reinterpret_cast<const void*>(kernels.score);
    error = cudaFuncSetAttribute(score, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kernels.shared_bytes));
    if (error == cudaSuccess) error = most_shared(score);
    if (error == cudaSuccess) error = most_shared(reinterpret_cast<const void*>(kernels.pool));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int pool(const Call& call, void* workspace, CUstream_st* stream) {
  if (!selects(call) || call.batch * call.heads_q == 0 || call.seq_q == 0) return cudaSuccess;
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Pools p{call, {}};
  p.of[0] = {call.q,
             call.heads_q,
             ceil_div(call.seq_q, kCellTokens),
             groups(call.seq_q),
             base + layout.q_cells,
             reinterpret_cast<float*>(base + layout.q_factors)};
  p.of[1] = {call.k,
             call.heads_kv,
             ceil_div(call.seq_kv, kCellTokens),
             groups(call.seq_kv),
             base + layout.k_cells,
             reinterpret_cast<float*>(base + layout.k_factors)};
  p.planes_kv = call.batch * call.heads_kv;
  p.shared_by = call.heads_q / call.heads_kv;
  p.abreast = ceil_div(kHeadsAbreast, p.shared_by);
  p.items = items_of_head(call) * static_cast<std::uint32_t>(p.planes_kv);
  p.next = reinterpret_cast<std::uint32_t*>(base + layout.counters);
  p.done = p.next + 1;
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;

  clear_kernel<<<1, kPoolThreads, 0, stream>>>(p.next, 1 + p.planes_kv);
  const auto blocks = std::min(p.items, static_cast<std::uint32_t>(kPoolCtas * multiprocessors));
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  return launch_beside(kernels_of(call).pool, p, blocks, kPoolThreads, 0, 1, stream);
}

int score(const Call& call, void* workspace, CUstream_st* stream) {
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Score p;
  p.call = call;
  p.rows = ceil_div(call.seq_q, call.block);
  p.columns = ceil_div(call.seq_kv, call.block);
  p.q_count = ceil_div(call.seq_q, kCellTokens);
  p.q_groups = groups(call.seq_q);
  p.k_groups = groups(call.seq_kv);
  p.counts = reinterpret_cast<int*>(base + layout.counts);
  p.indices = reinterpret_cast<int*>(base + layout.indices);
  p.q_cells = base + layout.q_cells;
  p.k_cells = base + layout.k_cells;
  p.q_factors = reinterpret_cast<const float*>(base + layout.q_factors);
  p.k_factors = reinterpret_cast<const float*>(base + layout.k_factors);
  p.scores = reinterpret_cast<float*>(base + layout.scores);
  p.done = reinterpret_cast<const std::uint32_t*>(base + layout.counters) + 1;
  p.items = items_of_head(call);
  const int planes = call.batch * call.heads_q;
  if (planes == 0 || p.rows == 0) return cudaSuccess;
  p.protected_blocks = static_cast<int>(
      std::min<std::int64_t>(p.columns, (call.protected_prefix + call.block - 1) / call.block));
  const int q_tiles = ceil_div(p.q_count, kCtaCells), cluster = cluster_size(q_tiles);
  p.q_tiles = ceil_div(q_tiles, cluster) * cluster;

  const Kernels kernels = kernels_of(call);
  return launch_beside(kernels.score, p, static_cast<unsigned>(planes * p.q_tiles), kScoreThreads,
                       kernels.shared_bytes, cluster, stream, selects(call));
}

int select(const Call& call, void* workspace, CUstream_st* stream) {
  const int error = pool(call, workspace, stream);
  return error != cudaSuccess ? error : score(call, workspace, stream);
}

}  // namespace fovea::block_topk_sm90
