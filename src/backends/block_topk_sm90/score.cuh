// Scores of all blocks of keys for the rows of a thread block, and the choice among them.
//
// A thread block takes 128 cells of queries of one head: two warpgroups of 64. A ninth warp copies
// groups of 64 cells of keys into a ring; blocks of a cluster, which take neighbouring cells of the
// same head, copy a share each for all. A warpgroup multiplies the next group while it reduces the
// last one to scores, which go to the workspace; then every warp chooses for some of the rows.
#pragma once

#include "src/backends/block_topk_sm90/choose.cuh"
#include "src/backends/block_topk_sm90/pool.cuh"
#include "src/cuda/wgmma.cuh"

namespace fovea::block_topk_sm90 {

#ifndef FOVEA_TOPK_Q_REGISTERS
#define FOVEA_TOPK_Q_REGISTERS 0
#endif
inline constexpr bool kQRegisters = FOVEA_TOPK_Q_REGISTERS;
inline constexpr int kWarpgroups = 2;
inline constexpr int kConsumers = 128 * kWarpgroups;
inline constexpr int kScoreThreads = kConsumers + 32;
inline constexpr int kCtaCells = kGroupCells * kWarpgroups;  // of queries

struct Score {
  Call call;
  const std::uint8_t *q_cells, *k_cells;
  const float *q_factors, *k_factors;
  float* scores;
  int *counts, *indices;
  const uint32_t* done;    // [batch * heads_kv]: items of averages, of
  uint32_t items;          // this many
  int q_count;             // cells of a head
  int q_groups, k_groups;  // of a head
  int rows, columns;
  int protected_blocks;
  int q_tiles;  // thread blocks of a head, in whole clusters
};

/// Shared memory of a thread block, in bytes from a multiple of 1024.
template <int kDim>
struct Ring {
  static constexpr uint32_t kGroupBytes = kGroupCells * kDim * 2;
  static constexpr uint32_t kFactorBytes = kGroupFactors * 4;
  static constexpr int kStages = kDim == 128 ? 5 : 8;
  static constexpr uint32_t kKeys = kQRegisters ? 0 : kWarpgroups * kGroupBytes;
  static constexpr uint32_t kFactors = kKeys + kStages * kGroupBytes;
  static constexpr uint32_t kQFull = kFactors + kStages * kFactorBytes;
  static constexpr uint32_t kFull = kQFull + 8;
  static constexpr uint32_t kEmpty = kFull + 8 * kStages;
  static constexpr uint32_t kBytes = kEmpty + 8 * kStages;
  static_assert(2 * (kBytes + 1024) <= 228 * 1024, "two thread blocks of a multiprocessor");
};

/// A position in the ring, and how often it came around.
template <int kStages>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  FOVEA_DEVICE void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

/// A score is a log2-sum-exp2 over the pairs of cells of two blocks. Every pair of blocks is added
/// up by the same threads in the same order, so that equal blocks tie to the bit.
template <int kCells>
struct Reduce {
  static constexpr int kOwn = 16 / kCells;      // blocks of keys in a thread's columns
  static constexpr int kTerms = 32 / kOwn;      // of each
  static constexpr int kResults = kOwn / 2;     // blocks whose score a thread ends with
  static constexpr int kRowLanes = kCells / 2;  // lanes / 4 that share a block of queries
  // What the plain sum can hold: terms below 2^-126 are lost, which is 2^-30 of the least sum.
  static constexpr float kLeast = 0x1p-90f, kMost = 0x1p120f;

  /// Adds up over the lanes of a block of queries: the lower half keeps the first results.
  FOVEA_DEVICE static void fold(float (&result)[kResults], const float (&sum)[kOwn]) {
    const bool upper = threadIdx.x & 4;
#pragma unroll
    for (int m = 0; m < kResults; m++) {
      const float other = upper ? sum[m] : sum[kResults + m];
      result[m] = (upper ? sum[kResults + m] : sum[m]) + __shfl_xor_sync(~0u, other, 4);
      if constexpr (kRowLanes == 4) result[m] += __shfl_xor_sync(~0u, result[m], 8);
    }
  }
  /// The largest of a block pair, in all its lanes.
  FOVEA_DEVICE static float maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 4));
    return kRowLanes == 4 ? fmaxf(x, __shfl_xor_sync(~0u, x, 8)) : x;
  }
  /// Term t of block `own` of a thread: its accumulator.
  FOVEA_DEVICE static constexpr int at(int own, int t) { return own * kTerms + t; }

  /// x(k, t): term t of block k of this thread, as a power of two.
  template <class Terms>
  FOVEA_DEVICE static void sums(float (&result)[kResults], Terms&& x) {
    float sum[kOwn];
#pragma unroll
    for (int k = 0; k < kOwn; k++) {
      float part[2];
#pragma unroll
      for (int t = 0; t < kTerms; t++) {
        const float term = cuda::exp2_fast(x(k, t));
        part[t % 2] = t < 2 ? term : part[t % 2] + term;
      }
      sum[k] = part[0] + part[1];
    }
    fold(result, sum);
  }
  /// The scores where sums do not fit: relative to the largest term, whose logarithm is added.
  template <class Terms>
  FOVEA_DEVICE static void scaled_scores(float (&result)[kResults], Terms&& x) {
    float sum[kOwn], largest[kOwn];
#pragma unroll
    for (int k = 0; k < kOwn; k++) {
      largest[k] = x(k, 0);
#pragma unroll
      for (int t = 1; t < kTerms; t++) largest[k] = fmaxf(largest[k], x(k, t));
      largest[k] = maximum(largest[k]);
      sum[k] = 0.f;
#pragma unroll
      for (int t = 0; t < kTerms; t++) sum[k] += cuda::exp2_fast(x(k, t) - largest[k]);
    }
    fold(result, sum);
    const bool upper = threadIdx.x & 4;
#pragma unroll
    for (int m = 0; m < kResults; m++)
      result[m] = (upper ? largest[kResults + m] : largest[m]) + __log2f(result[m]);
  }
};

/// What a consumer thread knows of its rows.
template <int kDim, int kCells>
struct Consumer {
  using R = Reduce<kCells>;
  using Layout = Ring<kDim>;
  static constexpr int kBlocks = kGroupCells / kCells;
  static constexpr uint32_t kPanelBytes = cuda::Tile::panel_bytes(kGroupCells);

  const Score& p;
  uint32_t shared, q_low, k_low, peers;
  int cells, columns, first;  // of keys
  int cell, row;              // first cell of queries of this thread's block, and that block
  int quad;                   // lane % 4: which blocks of keys
  float q_factor;
  float* scores;  // of the row
  bool inside, rows_whole;
  bool finite = true;  // the factors of keys that this thread saw

  FOVEA_DEVICE void multiply(float (&s)[32], const Turn<Layout::kStages>& turn) const {
    using Tile = cuda::Tile;
    cuda::mbarrier_wait(shared + Layout::kFull + 8 * turn.stage, turn.parity);
    cuda::pin(s);
    cuda::wgmma_fence();
    const uint32_t k = k_low + (turn.stage * Layout::kGroupBytes >> 4);
#pragma unroll
    for (int step = 0; step < kDim / 16; step++) {
      const uint32_t at =
          (step / Tile::kStepsPerPanel * kPanelBytes + step % Tile::kStepsPerPanel * 32) >> 4;
      cuda::WgmmaShared<cuda::F16, kGroupCells>::multiply(s, Tile::descriptor(q_low + at),
                                                          Tile::descriptor(k + at), step != 0);
    }
    cuda::wgmma_commit();
  }

  /// The same with queries in registers.
  FOVEA_DEVICE void multiply(float (&s)[32], uint32_t (&q)[kDim / 4],
                             const Turn<Layout::kStages>& turn) const {
    using Tile = cuda::Tile;
    cuda::mbarrier_wait(shared + Layout::kFull + 8 * turn.stage, turn.parity);
    cuda::pin(q);
    cuda::pin(s);
    cuda::wgmma_fence();
    const uint32_t k = k_low + (turn.stage * Layout::kGroupBytes >> 4);
#pragma unroll
    for (int step = 0; step < kDim / 16; step++) {
      const uint32_t at =
          (step / Tile::kStepsPerPanel * kPanelBytes + step % Tile::kStepsPerPanel * 32) >> 4;
      cuda::WgmmaMixed<cuda::F16, kGroupCells>::multiply(s, q[4 * step], q[4 * step + 1],
                                                         q[4 * step + 2], q[4 * step + 3],
                                                         Tile::descriptor(k + at), step != 0);
    }
    cuda::wgmma_commit();
  }

  /// Reads the factors of a group, whose product is complete, and hands its buffer back.
  FOVEA_DEVICE void release(float (&factor)[R::kOwn], int stage) const {
    const uint32_t from = shared + Layout::kFactors + stage * Layout::kFactorBytes + 4 * quad;
#pragma unroll
    for (int k = 0; k < R::kOwn; k++)
      factor[k] = __uint_as_float(cuda::shared_load_4(from + 16 * k));
    __syncwarp();
    const uint32_t lane = threadIdx.x % 32;
    cuda::mbarrier_arrive_remote_if(
        lane < peers,
        cuda::map_to_cta(shared + Layout::kEmpty + 8 * stage, lane < peers ? lane : 0));
  }

  FOVEA_DEVICE void reduce(const float (&s)[32], float (&factor)[R::kOwn], int group) {
#pragma unroll
    for (int k = 0; k < R::kOwn; k++) {
      const int column = group * kBlocks + 4 * k + quad;
      finite = finite && (isfinite(factor[k]) || column < first || column >= columns);
      factor[k] *= q_factor;
    }
    // Rounded on its own wherever it is used, so that equal blocks have equal terms.
    const auto product = [&](int k, int t) { return __fmul_rn(s[R::at(k, t)], factor[k]); };
    // Cells that do not exist have no term.
    const auto existing = [&](int k, int t) {
      const int i = t / 4 * 2 + t % 2, h = t / 2 % 2;
      const bool exists =
          group * kGroupCells + (4 * k + quad) * kCells + i < cells && cell + h < p.q_count;
      return exists ? product(k, t) : -INFINITY;
    };
    float result[R::kResults];
    if (rows_whole && (group + 1) * kGroupCells <= cells)
      R::sums(result, product);
    else
      R::sums(result, existing);
    const int column = group * kBlocks + 4 * R::kResults * (threadIdx.x / 4 % 2) + quad;
    bool fits = true;
#pragma unroll
    for (int m = 0; m < R::kResults; m++)
      fits = fits && ((result[m] >= R::kLeast && result[m] <= R::kMost) || !inside ||
                      column + 4 * m >= columns);
    float score[R::kResults];
#pragma unroll
    for (int m = 0; m < R::kResults; m++) score[m] = __log2f(result[m]);
    if (!__all_sync(~0u, fits)) {
      float scaled[R::kResults];
      R::scaled_scores(scaled, existing);
#pragma unroll
      for (int m = 0; m < R::kResults; m++)
        if (!(result[m] >= R::kLeast && result[m] <= R::kMost)) score[m] = scaled[m];
    }
    const bool writes = inside && (kCells == 4 || (threadIdx.x & 8) == 0);
#pragma unroll
    for (int m = 0; m < R::kResults; m++)
      if (writes && column + 4 * m < columns) scores[column + 4 * m] = score[m];
  }
};

template <int kDim, int kCells>
__global__ void __launch_bounds__(kScoreThreads, 2) score_kernel(const __grid_constant__ Score p) {
  using Layout = Ring<kDim>;
  using R = Reduce<kCells>;
  extern __shared__ __align__(1024) uint8_t storage[];
  const uint32_t shared = cuda::shared_address(storage);
  const uint32_t rank = cuda::cluster_rank(), peers = cuda::cluster_size();
  const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int plane = static_cast<int>(blockIdx.x) / p.q_tiles, batch = plane / p.call.heads_q;
  const int head_kv = plane % p.call.heads_q / (p.call.heads_q / p.call.heads_kv);
  const long long plane_kv = static_cast<long long>(batch) * p.call.heads_kv + head_kv;
  const int length = kv_length(p.call, batch);
  const int columns = divide_up(length, p.call.block);
  const int first = min(columns, p.protected_blocks);
  const int kept = min(kept_blocks(columns, first, p.call.sparsity), p.call.most);
  const int first_cell = (static_cast<int>(blockIdx.x) - plane * p.q_tiles) * kCtaCells;
  const int cells = divide_up(length, kCellTokens);
  // In pairs: behind an odd number the last one comes again, as cells that do not exist.
  const int last_group = divide_up(cells, kGroupCells) - 1;
  const int groups = cuda::uniform(kept == columns ? 0
                                   : kQRegisters   ? last_group + 1
                                                   : last_group / 2 * 2 + 2);
  if (threadIdx.x == 0) {
    cuda::mbarrier_init(shared + Layout::kQFull, 1);
    for (int stage = 0; stage < Layout::kStages; stage++) {
      cuda::mbarrier_init(shared + Layout::kFull + 8 * stage, 1);
      cuda::mbarrier_init(shared + Layout::kEmpty + 8 * stage,
                          static_cast<int>(peers) * kConsumers / 32);
    }
    cuda::mbarrier_init_fence();
    if (groups > 0)
      while (cuda::load_acquire(p.done + plane_kv) != p.items) __nanosleep(100);
  }
  cuda::cluster_sync();

  bool finite = true;
  if (warp == kConsumers / 32) {
    if (lane == 0 && groups > 0) {
      cuda::fence_async_global();
      const int q_group = first_cell / kGroupCells;
      const int q_here = max(min(kWarpgroups, p.q_groups - q_group), 0);
      if (kQRegisters) {
      } else if (q_here > 0) {
        const uint32_t bytes = q_here * Layout::kGroupBytes;
        cuda::mbarrier_expect(shared + Layout::kQFull, bytes);
        cuda::bulk_load(shared,
                        p.q_cells + (static_cast<long long>(plane) * p.q_groups + q_group) *
                                        Layout::kGroupBytes,
                        bytes, shared + Layout::kQFull);
      } else {
        cuda::mbarrier_arrive(shared + Layout::kQFull);
      }
      const uint32_t share = Layout::kGroupBytes / peers, begin = rank * share;
      Turn<Layout::kStages> turn;
#pragma unroll 1
      for (int group = 0; group < groups; group++) {
        const uint32_t full = shared + Layout::kFull + 8 * turn.stage;
        const uint32_t to = shared + Layout::kKeys + turn.stage * Layout::kGroupBytes + begin;
        const long long source = plane_kv * p.k_groups + min(group, last_group);
        const auto* from = p.k_cells + source * Layout::kGroupBytes + begin;
        cuda::mbarrier_wait(shared + Layout::kEmpty + 8 * turn.stage, turn.parity ^ 1);
        cuda::mbarrier_expect(full, Layout::kGroupBytes + Layout::kFactorBytes);
        if (peers > 1)
          cuda::bulk_load_multicast(to, from, share, full,
                                    static_cast<uint16_t>((1u << peers) - 1));
        else
          cuda::bulk_load(to, from, share, full);
        cuda::bulk_load(shared + Layout::kFactors + turn.stage * Layout::kFactorBytes,
                        p.k_factors + source * kGroupFactors, Layout::kFactorBytes, full);
        turn.advance();
      }
    }
    __syncwarp();
  } else if (groups > 0) {
    const int warpgroup = warp / 4, quarter = warp % 4, block = lane / 4 / R::kRowLanes;
    const int cell = first_cell + warpgroup * kGroupCells + quarter * 16 + block * kCells;
    const int row = cell / kCells;
    const bool inside = row < p.rows;
    const long long q_group = static_cast<long long>(plane) * p.q_groups + cell / kGroupCells;
    const float q_factor =
        inside ? p.q_factors[q_group * kGroupFactors + cell % kGroupCells / kCells] * p.call.scale *
                     1.4426950408889634f
               : 0.f;
    Consumer<kDim, kCells> c{
        p,
        shared,
        cuda::Tile::descriptor_low(shared + warpgroup * Layout::kGroupBytes, 16),
        cuda::Tile::descriptor_low(shared + Layout::kKeys, 16),
        peers,
        cells,
        columns,
        first,
        cell + lane / 4 % R::kRowLanes * 2,
        row,
        lane % 4,
        q_factor,
        p.scores + (static_cast<long long>(plane) * p.rows + row) * p.columns,
        inside,
        first_cell + kCtaCells <= p.q_count};
    if constexpr (kQRegisters) {
      uint32_t q[kDim / 4];
      const auto* tile = p.q_cells + (static_cast<long long>(plane) * p.q_groups +
                                      min(cell / kGroupCells, p.q_groups - 1)) *
                                         Layout::kGroupBytes;
      const int g = quarter * 16 + lane / 4;
#pragma unroll
      for (int i = 0; i < kDim / 4; i++)
        q[i] = __ldcg(reinterpret_cast<const uint32_t*>(
            tile + cuda::Tile::offset(g + i % 2 * 8, i / 4 * 2 + i / 2 % 2, kGroupCells) +
            4 * (lane % 4)));
      float s[32];
      Turn<Layout::kStages> turn;
#pragma unroll 1
      for (int group = 0; group < groups; group++) {
        c.multiply(s, q, turn);
        cuda::wgmma_wait<0>();
        cuda::pin(s);
        float factor[R::kOwn];
        c.release(factor, turn.stage);
        turn.advance();
        c.reduce(s, factor, group);
      }
    } else {
      float a[32], b[32];
      Turn<Layout::kStages> coming;  // to multiply
      int stage = 0;                 // to reduce
      const auto multiply = [&](float(&s)[32]) {
        c.multiply(s, coming);
        coming.advance();
      };
      const auto reduce = [&](float(&s)[32], int group) {
        cuda::pin(s);
        float factor[R::kOwn];
        c.release(factor, stage);
        stage = stage + 1 == Layout::kStages ? 0 : stage + 1;
        c.reduce(s, factor, group);
      };
      cuda::mbarrier_wait(shared + Layout::kQFull, 0);
#pragma unroll 1
      for (int group = 0; group < groups; group += 2) {
        multiply(a);
        multiply(b);
        cuda::wgmma_wait<1>();
        reduce(a, group);
        cuda::wgmma_wait<0>();
        reduce(b, group + 1);
      }
    }
    finite = c.finite;
  }

  // Scores of averages that are not finite cannot be compared.
  const bool comparable = __syncthreads_and(finite) != 0;
  cuda::cluster_arrive();
  const int first_row = first_cell / kCells;
#pragma unroll 1
  for (int n = warp; n < kCtaCells / kCells; n += kScoreThreads / 32) {
    if (first_row + n >= p.rows) break;
    const long long row = static_cast<long long>(plane) * p.rows + first_row + n;
    if (lane == 0) p.counts[row] = kept;
    int* out = p.indices + row * p.call.most;
    const int cell = (first_row + n) * kCells;
    const long long q_group = static_cast<long long>(plane) * p.q_groups + cell / kGroupCells;
    const bool row_finite =
        kept == columns ||
        isfinite(p.q_factors[q_group * kGroupFactors + cell % kGroupCells / kCells]);
    if (kept == columns || !comparable || !row_finite)
      for (int i = lane; i < kept; i += 32) out[i] = i;
    else
      choose_row(p.scores + row * p.columns, columns, first, kept, out);
  }
  __syncwarp();
  cuda::cluster_wait();
  // What follows this kernel follows the one before it too.
  if (blockIdx.x + 1 == gridDim.x) cuda::wait_for_earlier_launches();
}

}  // namespace fovea::block_topk_sm90
