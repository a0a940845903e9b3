// Launches: averages, then scores and the choice. The second kernel starts while the first one
// ends.
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

/// Thread blocks of a head share what they read if that leaves few of them without work.
int cluster_size(int q_tiles) { return q_tiles % 2 == 0 || q_tiles > 8 ? 2 : 1; }

}  // namespace

int prepare() {
  for (const Kernels& kernels : {kKernels<cuda::F16, 128, 8>, kKernels<cuda::F16, 64, 8>,
                                 kKernels<cuda::F16, 128, 4>, kKernels<cuda::F16, 64, 4>}) {
    cudaError_t error =
        cudaFuncSetAttribute(kernels.score, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kernels.shared_bytes));
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernels.score, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
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
  const dim3 grid(call.heads_q + call.heads_kv,
                  ceil_div(std::max(p.of[0].cells, p.of[1].cells), kPoolCells), call.batch);
  kernels_of(call).pool<<<grid, kPoolThreads, 0, stream>>>(p);
  return cudaGetLastError();
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
  const int planes = call.batch * call.heads_q;
  if (planes == 0 || p.rows == 0) return cudaSuccess;
  p.protected_blocks = static_cast<int>(
      std::min<std::int64_t>(p.columns, (call.protected_prefix + call.block - 1) / call.block));
  const int q_tiles = ceil_div(p.q_count, kCtaCells), cluster = cluster_size(q_tiles);
  p.q_tiles = ceil_div(q_tiles, cluster) * cluster;

  const Kernels kernels = kernels_of(call);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(planes * p.q_tiles));
  config.blockDim = dim3(kScoreThreads);
  config.dynamicSmemBytes = kernels.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernels.score, p);
}

int select(const Call& call, void* workspace, CUstream_st* stream) {
  const int error = pool(call, workspace, stream);
  return error != cudaSuccess ? error : score(call, workspace, stream);
}

}  // namespace fovea::block_topk_sm90
