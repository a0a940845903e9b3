// Pooling, then one kernel that scores and chooses. A thread block takes 128 cells of queries of
// one head, multiplies them with all cells of keys, reduces every pair of blocks to a score, and
// then chooses the blocks of its own rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "src/backends/block_topk_sm90/choose.cuh"
#include "src/backends/block_topk_sm90/pool.cuh"
#include "src/backends/block_topk_sm90/select.hpp"
#include "src/cuda/mma.cuh"
#include "src/cuda/tile.cuh"
#include "src/cuda/wgmma.cuh"

namespace fovea::block_topk_sm90 {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kTileCells = 128;  // of keys
constexpr int kStages = 2;
constexpr int kThreads = 128 * kWarpgroups;
constexpr int kCtaCells = 64 * kWarpgroups;  // of queries

struct Score {
  Call call;
  const std::uint16_t *q_cells, *k_cells;
  const float *q_scales, *k_scales;
  float* scores;
  int *counts, *indices;
  int q_count, k_count;  // cells of a head
  int rows, columns;
  int protected_blocks;
  int q_tiles;  // thread blocks of a head
};

template <int kDim>
struct Shared {
  static constexpr int kPanels = kDim / cuda::Tile::kColumns;
  static constexpr uint32_t kQPanelBytes = cuda::Tile::panel_bytes(64);
  static constexpr uint32_t kKPanelBytes = cuda::Tile::panel_bytes(kTileCells);
  static constexpr uint32_t kQBytes = kPanels * kQPanelBytes;
  static constexpr uint32_t kKBytes = kPanels * kKPanelBytes;
  static constexpr uint32_t kKOffset = kWarpgroups * kQBytes;
  static constexpr uint32_t kScaleOffset = kKOffset + kStages * kKBytes;
  static constexpr uint32_t kBytes = kScaleOffset + kStages * kTileCells * 8;
};

/// Copies `rows` cells from `first` on into a swizzled tile; cells beyond `count` are zero.
template <int kDim>
FOVEA_DEVICE void load_cells(uint32_t to, const std::uint16_t* head, int first, int count,
                             int rows) {
  constexpr int kChunks = kDim / 8;
  for (int n = threadIdx.x; n < rows * kChunks; n += kThreads) {
    const int row = n / kChunks, chunk = n % kChunks;
    const bool inside = first + row < count;
    const long long cell = inside ? first + row : 0;
    cuda::copy_async_16(to + cuda::Tile::offset(row, chunk, rows), head + cell * kDim + 8 * chunk,
                        inside);
  }
}

/// A score is a log2-sum-exp2 over the pairs of cells of two blocks. Terms are at most 1 and are
/// added as multiples of 2^-25, so that the sum does not depend on an order and equal blocks tie.
template <int kCells>
struct Reduce {
  static constexpr int kGroups = (8 / kCells) * (8 / kCells);  // block pairs in an 8 x 8 tile
  static constexpr int kLanes = 32 / kGroups;                  // of one pair
  static constexpr int kResults = kTileCells / 8 * 2;          // of a group in 16 x 128 scores
  static constexpr int kKept = kResults / kLanes;              // of a lane

  int column_block = 0, row_block = 0;  // within an 8 x 8 tile
  int position;                         // in the group

  FOVEA_DEVICE Reduce() {
    const int lane = threadIdx.x % 32;
    position = lane;
    if constexpr (kCells == 4) {
      row_block = lane / 16;
      column_block = lane % 4 / 2;
      position = lane % 16 / 4 * 2 + lane % 2;
    }
  }
  // Lanes of a group of eight differ in bits 0, 2 and 3.
  FOVEA_DEVICE static int maximum(int x) {
    if constexpr (kCells == 8) return __reduce_max_sync(~0u, x);
    x = max(x, __shfl_xor_sync(~0u, x, 1));
    x = max(x, __shfl_xor_sync(~0u, x, 4));
    return max(x, __shfl_xor_sync(~0u, x, 8));
  }
  FOVEA_DEVICE static uint32_t sum(uint32_t x) {
    if constexpr (kCells == 8) return __reduce_add_sync(~0u, x);
    x += __shfl_xor_sync(~0u, x, 1);
    x += __shfl_xor_sync(~0u, x, 4);
    return x + __shfl_xor_sync(~0u, x, 8);
  }
};

/// Finite floats as integers of the same order, and back.
FOVEA_DEVICE int order_of(int bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

template <int kDim, int kCells>
__global__ void __launch_bounds__(kThreads, 2) score_kernel(const __grid_constant__ Score p) {
  using S = Shared<kDim>;
  using R = Reduce<kCells>;
  using Tile = cuda::Tile;
  extern __shared__ __align__(1024) uint8_t storage[];
  const uint32_t shared = cuda::shared_address(storage);
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const int plane = static_cast<int>(blockIdx.x) / p.q_tiles, batch = plane / p.call.heads_q;
  const int head_kv = plane % p.call.heads_q / (p.call.heads_q / p.call.heads_kv);
  const long long plane_kv = static_cast<long long>(batch) * p.call.heads_kv + head_kv;
  const std::uint16_t* q_cells = p.q_cells + static_cast<long long>(plane) * p.q_count * kDim;
  const std::uint16_t* k_cells = p.k_cells + plane_kv * p.k_count * kDim;
  const float* k_scales = p.k_scales + plane_kv * p.k_count;

  const int length = kv_length(p.call, batch);
  const int columns = divide_up(length, p.call.block);
  const int cells = divide_up(length, kCellTokens);
  const int first = min(columns, p.protected_blocks);
  const int kept = min(kept_blocks(columns, first, p.call.sparsity), p.call.most);
  const int first_cell = (static_cast<int>(blockIdx.x) - plane * p.q_tiles) * kCtaCells;
  const int tiles = kept == columns ? 0 : divide_up(cells, kTileCells);

  bool finite = true;  // the averages of keys that this thread saw
  // Every cell has a factor and, where it holds no key, -inf to add to its scores.
  const auto load_keys = [&](int tile) {
    const int stage = tile % kStages, from = tile * kTileCells;
    load_cells<kDim>(shared + S::kKOffset + stage * S::kKBytes, k_cells, from, cells, kTileCells);
    if (threadIdx.x < kTileCells) {
      const int cell = from + static_cast<int>(threadIdx.x);
      const float scale = cell < cells ? __ldg(k_scales + cell) : 0.f;
      finite = finite && (isfinite(scale) || cell < first * kCells);
      const uint32_t to = shared + S::kScaleOffset + (stage * kTileCells + threadIdx.x) * 8;
      cuda::shared_store_4(to, __float_as_uint(scale));
      cuda::shared_store_4(to + 4, __float_as_uint(cell < cells ? 0.f : -INFINITY));
    }
  };
  if (tiles > 0) {
    for (int w = 0; w < kWarpgroups; w++)
      load_cells<kDim>(shared + w * S::kQBytes, q_cells, first_cell + 64 * w, p.q_count, 64);
    load_keys(0);
  }

  const R reduce;
  float q_scale[2];
  bool q_inside[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int cell = first_cell + warpgroup * 64 + warp * 16 + lane / 4 + 8 * h;
    q_inside[h] = tiles > 0 && cell < p.q_count;
    q_scale[h] = q_inside[h] ? p.q_scales[static_cast<long long>(plane) * p.q_count + cell] *
                                   p.call.scale * 1.4426950408889634f
                             : 0.f;
  }
  const uint32_t q_low = Tile::descriptor_low(shared + warpgroup * S::kQBytes, 16);
  const uint32_t k_low = Tile::descriptor_low(shared + S::kKOffset, 16);
  float s[kTileCells / 2];
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    const int stage = tile % kStages;
    cuda::copy_async_wait();
    cuda::fence_async_shared();
    __syncthreads();
    if (tile + 1 < tiles) load_keys(tile + 1);
    cuda::pin(s);
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDim / 16; step++) {
      const uint32_t panel = step / Tile::kStepsPerPanel, at = step % Tile::kStepsPerPanel * 32;
      cuda::WgmmaShared<cuda::F16, kTileCells>::multiply(
          s, Tile::descriptor(q_low + ((panel * S::kQPanelBytes + at) >> 4)),
          Tile::descriptor(k_low + ((stage * S::kKBytes + panel * S::kKPanelBytes + at) >> 4)),
          step != 0);
    }
    cuda::wgmma_commit();
    cuda::wgmma_wait<0>();
    cuda::pin(s);

    float best[R::kKept];
    uint32_t sums[R::kKept];
    const uint32_t k_scale = shared + S::kScaleOffset + (stage * kTileCells + 2 * (lane % 4)) * 8;
#pragma unroll
    for (int j = 0; j < kTileCells / 8; j++) {
      const uint4 k = cuda::shared_load_16(k_scale + 64 * j);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int n = 2 * j + h;
        const float x0 =
            fmaf(s[4 * j + 2 * h], q_scale[h] * __uint_as_float(k.x), __uint_as_float(k.y));
        const float x1 =
            fmaf(s[4 * j + 2 * h + 1], q_scale[h] * __uint_as_float(k.z), __uint_as_float(k.w));
        const int key = q_inside[h] ? order_of(__float_as_int(fmaxf(x0, x1))) : INT_MIN;
        const float maximum = __int_as_float(order_of(R::maximum(key)));
        const float terms = cuda::exp2_fast(x0 - maximum) + cuda::exp2_fast(x1 - maximum);
        const uint32_t sum = R::sum(q_inside[h] ? __float2uint_rn(terms * 0x1p25f) : 0);
        if (n % R::kLanes == reduce.position) {
          best[n / R::kLanes] = maximum;
          sums[n / R::kLanes] = sum;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < R::kKept; i++) {
      const int n = i * R::kLanes + reduce.position, j = n / 2, h = n % 2;
      const int row = (first_cell + warpgroup * 64 + warp * 16 + 8 * h) / kCells + reduce.row_block;
      const int column = (tile * kTileCells + 8 * j) / kCells + reduce.column_block;
      if (row < p.rows && column < columns)
        p.scores[(static_cast<long long>(plane) * p.rows + row) * p.columns + column] =
            best[i] + __log2f(static_cast<float>(sums[i])) - 25.f;
    }
  }

  // Scores of averages that are not finite cannot be compared.
  const bool comparable = __syncthreads_and(finite) != 0;
  const int first_row = first_cell / kCells;
#pragma unroll 1
  for (int n = threadIdx.x / 32; n < kCtaCells / kCells; n += kThreads / 32) {
    if (first_row + n >= p.rows) break;
    const long long row = static_cast<long long>(plane) * p.rows + first_row + n;
    if (lane == 0) p.counts[row] = kept;
    int* out = p.indices + row * p.call.most;
    const int cell = (first_row + n) * kCells + lane % kCells;
    const bool row_finite =
        kept == columns || cell >= p.q_count ||
        isfinite(__ldg(p.q_scales + static_cast<long long>(plane) * p.q_count + cell));
    if (kept == columns || !comparable || !__all_sync(~0u, row_finite))
      for (int i = lane; i < kept; i += 32) out[i] = i;
    else
      choose_row(p.scores + row * p.columns, columns, first, kept, out);
  }
}

using PoolKernel = void (*)(Pools);
PoolKernel pool_kernel_of(const Call& call) {
  const bool wide = padded_dim(call.head_dim) == 128;
  if (call.f16) return wide ? &pool_kernel<cuda::F16, 128> : &pool_kernel<cuda::F16, 64>;
  return wide ? &pool_kernel<cuda::Bf16, 128> : &pool_kernel<cuda::Bf16, 64>;
}

struct ScoreKernel {
  void (*function)(Score);
  uint32_t shared_bytes;
};
template <int kDim, int kCells>
constexpr ScoreKernel kScoreKernel = {&score_kernel<kDim, kCells>, Shared<kDim>::kBytes};
ScoreKernel score_kernel_of(const Call& call) {
  const bool wide = padded_dim(call.head_dim) == 128;
  if (call.block == 128) return wide ? kScoreKernel<128, 8> : kScoreKernel<64, 8>;
  return wide ? kScoreKernel<128, 4> : kScoreKernel<64, 4>;
}

}  // namespace

int prepare() {
  for (const ScoreKernel& kernel :
       {kScoreKernel<128, 8>, kScoreKernel<64, 8>, kScoreKernel<128, 4>, kScoreKernel<64, 4>}) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kernel.shared_bytes));
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int select(const Call& call, void* workspace, CUstream_st* stream) {
  const WorkspaceLayout layout = workspace_layout(call);
  auto* base = static_cast<std::uint8_t*>(workspace);
  Score p;
  p.call = call;
  p.rows = ceil_div(call.seq_q, call.block);
  p.columns = ceil_div(call.seq_kv, call.block);
  p.q_count = ceil_div(call.seq_q, kCellTokens);
  p.k_count = ceil_div(call.seq_kv, kCellTokens);
  p.counts = reinterpret_cast<int*>(base + layout.counts);
  p.indices = reinterpret_cast<int*>(base + layout.indices);
  const int planes = call.batch * call.heads_q;
  if (planes == 0 || p.rows == 0) return cudaSuccess;
  p.q_tiles = ceil_div(p.q_count, kCtaCells);
  p.protected_blocks = static_cast<int>(
      std::min<std::int64_t>(p.columns, (call.protected_prefix + call.block - 1) / call.block));
  auto* q_cells = reinterpret_cast<std::uint16_t*>(base + layout.q_cells);
  auto* k_cells = reinterpret_cast<std::uint16_t*>(base + layout.k_cells);
  auto* q_scales = reinterpret_cast<float*>(base + layout.q_scales);
  auto* k_scales = reinterpret_cast<float*>(base + layout.k_scales);
  p.scores = reinterpret_cast<float*>(base + layout.scores);
  p.q_cells = q_cells;
  p.k_cells = k_cells;
  p.q_scales = q_scales;
  p.k_scales = k_scales;
  if (selects(call)) {
    constexpr int kWarps = kPoolThreads / 32;
    const int q_blocks = ceil_div(planes * p.q_count, kWarps);
    const int k_blocks = ceil_div(call.batch * call.heads_kv * p.k_count, kWarps);
    const Pools pools{call,
                      {{call.q, call.heads_q, p.q_count, q_cells, q_scales},
                       {call.k, call.heads_kv, p.k_count, k_cells, k_scales}},
                      q_blocks};
    pool_kernel_of(call)<<<static_cast<unsigned>(q_blocks + k_blocks), kPoolThreads, 0, stream>>>(
        pools);
  }
  const ScoreKernel kernel = score_kernel_of(call);
  kernel.function<<<static_cast<unsigned>(planes * p.q_tiles), kThreads, kernel.shared_bytes,
                    stream>>>(p);
  return cudaGetLastError();
}

}  // namespace fovea::block_topk_sm90
