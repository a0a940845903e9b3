// Launches: averages, scores, the choice. Each starts up while the one before it ends.
#include <cuda_runtime.h>

#include <algorithm>

#include "src/backends/block_topk_sm90/score.cuh"
#include "src/backends/block_topk_sm90/select.hpp"
#include "src/cuda/launch_attributes.hpp"

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

/// Groups that hold `seq` tokens, of so many cells.
int groups(int seq, int cells) { return ceil_div(seq, cells * kCellTokens); }

template <class Argument>
cudaError_t launch(void (*kernel)(Argument), const Argument& argument, dim3 blocks, int threads,
                   std::uint32_t shared_bytes, CUstream_st* stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cuda::LaunchAttributes attributes;
  attributes.add_to(config);
  return cudaLaunchKernelEx(&config, kernel, argument);
}

/// Rows of blocks of all heads, for each of which there is a list.
int all_rows(const Call& call) {
  return call.batch * call.heads_q * ceil_div(call.seq_q, call.block);
}
int protected_blocks(const Call& call) {
  return static_cast<int>(std::min<std::int64_t>(
      ceil_div(call.seq_kv, call.block), (call.protected_prefix + call.block - 1) / call.block));
}

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
  if (!selects(call) || all_rows(call) == 0) return cudaSuccess;
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Pools p{call, {}};
  p.of[0] = {call.q,
             call.scale * 1.4426950408889634f,
             call.heads_q,
             ceil_div(call.seq_q, kCellTokens),
             std::int64_t{groups(call.seq_q, kQueryCells)} * kQueryCells,
             base + layout.q_cells,
             reinterpret_cast<float*>(base + layout.q_factors)};
  p.of[1] = {call.k,
             1.f,
             call.heads_kv,
             ceil_div(call.seq_kv, kCellTokens),
             std::int64_t{groups(call.seq_kv, kKeyCells)} * kKeyCells,
             base + layout.k_cells,
             reinterpret_cast<float*>(base + layout.k_factors)};
  const dim3 grid(call.heads_q + call.heads_kv,
                  ceil_div(std::max(p.of[0].cells, p.of[1].cells), kPoolCells), call.batch);
  return launch(kernels_of(call).pool, p, grid, kPoolThreads, 0, stream);
}

int score(const Call& call, void* workspace, CUstream_st* stream, int most_blocks) {
  if (!selects(call) || all_rows(call) == 0) return cudaSuccess;
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Score p;
  p.call = call;
  p.q_cells = base + layout.q_cells;
  p.k_cells = base + layout.k_cells;
  p.q_factors = reinterpret_cast<const float*>(base + layout.q_factors);
  p.k_factors = reinterpret_cast<const float*>(base + layout.k_factors);
  p.scores = reinterpret_cast<float*>(base + layout.scores);
  p.q_count = ceil_div(call.seq_q, kCellTokens);
  p.q_groups = groups(call.seq_q, kQueryCells);
  p.k_groups = groups(call.seq_kv, kKeyCells);
  p.rows = ceil_div(call.seq_q, call.block);
  p.columns = ceil_div(call.seq_kv, call.block);
  p.protected_blocks = protected_blocks(call);
  p.q_tiles = ceil_div(p.q_count, kTileCells);
  p.work = std::int64_t{call.batch} * call.heads_q * p.q_tiles * p.k_groups;
  if (p.work == 0) return cudaSuccess;

  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const int most = most_blocks > 0 ? std::min(most_blocks, multiprocessors) : multiprocessors;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(p.work, most));
  const Kernels kernels = kernels_of(call);
  return launch(kernels.score, p, dim3(blocks), kScoreThreads, kernels.shared_bytes, stream);
}

int choose(const Call& call, void* workspace, CUstream_st* stream) {
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Choose p;
  p.call = call;
  p.scores = reinterpret_cast<const float*>(base + layout.scores);
  p.counts = reinterpret_cast<int*>(base + layout.counts);
  p.indices = reinterpret_cast<int*>(base + layout.indices);
  p.rows = ceil_div(call.seq_q, call.block);
  p.columns = ceil_div(call.seq_kv, call.block);
  p.protected_blocks = protected_blocks(call);
  p.all_rows = all_rows(call);
  if (p.all_rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(p.all_rows, kChooseThreads / 32));
  const int scored = p.columns - p.protected_blocks;
  const auto kernel = scored <= 8 * 32    ? &choose_kernel<8, false>
                      : scored <= 16 * 32 ? &choose_kernel<16, false>
                                          : &choose_kernel<32, true>;
  return launch(kernel, p, dim3(blocks), kChooseThreads, 0, stream);
}

int select(const Call& call, void* workspace, CUstream_st* stream, int most_blocks) {
  int error = pool(call, workspace, stream);
  if (error == cudaSuccess) error = score(call, workspace, stream, most_blocks);
  return error != cudaSuccess ? error : choose(call, workspace, stream);
}

}  // namespace fovea::block_topk_sm90
