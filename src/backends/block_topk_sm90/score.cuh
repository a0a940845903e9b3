// Scores of all pairs of blocks.
//
// A tile is 256 cells of queries of one head, 64 for each of four warpgroups. Every multiprocessor
// has one thread block, which takes an equal share of all tiles times turns of four groups of 64
// cells of keys; a seventeenth warp copies queries and groups ahead. A warpgroup multiplies the
// next group while it reduces the last one to scores.
#pragma once

#include "src/backends/block_topk_sm90/choose.cuh"
#include "src/backends/block_topk_sm90/pool.cuh"
#include "src/cuda/wgmma.cuh"

namespace fovea::block_topk_sm90 {

inline constexpr int kWarpgroups = 4;
inline constexpr int kConsumers = 128 * kWarpgroups;
inline constexpr int kScoreThreads = kConsumers + 32;
inline constexpr int kTileCells = kGroupCells * kWarpgroups;  // of queries
inline constexpr int kTurnGroups = 4;  // of keys, between two waits without a product under way

struct Score {
  Call call;
  const std::uint8_t *q_cells, *k_cells;
  const float *q_factors, *k_factors;
  float* scores;
  int q_count;             // cells of a head
  int q_groups, k_groups;  // of a head
  int rows, columns;
  int protected_blocks;
  int q_tiles, k_turns;  // of a head: tiles of queries, turns of kTurnGroups groups of keys
  long long work;        // turns of all tiles
};

/// Shared memory of a thread block, in bytes from a multiple of 1024: two tiles of queries, a ring
/// of groups of keys.
template <int kDim>
struct Ring {
  static constexpr uint32_t kGroupBytes = kGroupCells * kDim * 2;
  static constexpr uint32_t kFactorBytes = kGroupFactors * 4;
  static constexpr int kStages = kDim == 128 ? 6 : 12;
  static constexpr uint32_t kTileBytes = kWarpgroups * kGroupBytes;
  static constexpr uint32_t kKeys = 2 * kTileBytes;
  static constexpr uint32_t kFactors = kKeys + kStages * kGroupBytes;
  static constexpr uint32_t kQFull = kFactors + kStages * kFactorBytes;
  static constexpr uint32_t kQEmpty = kQFull + 16;
  static constexpr uint32_t kFull = kQEmpty + 16;
  static constexpr uint32_t kEmpty = kFull + 8 * kStages;
  static constexpr uint32_t kBytes = kEmpty + 8 * kStages;
  static_assert(kBytes <= 227 * 1024);
};

/// A position in the ring, and how often it came around.
template <int kStages>
struct Place {
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
  uint32_t shared, q_low, k_low;
  uint32_t factors;  // of this thread's blocks of keys in the first stage
  int cells;         // of keys
  int columns;       // from this thread's first one on; none for a row that does not exist
  int cell;          // first of this thread's cells of queries
  float q_factor;
  float* scores;  // of the row, from the first column on
  bool rows_whole;

  /// Column of a group whose score a thread writes first.
  FOVEA_DEVICE static int first_column() {
    return 4 * R::kResults * static_cast<int>(threadIdx.x / 4 % 2) +
           static_cast<int>(threadIdx.x % 4);
  }

  FOVEA_DEVICE void multiply(float (&s)[32], const Place<Layout::kStages>& place) const {
    using Tile = cuda::Tile;
    cuda::mbarrier_wait(shared + Layout::kFull + 8 * place.stage, place.parity);
    cuda::pin(s);
    cuda::wgmma_fence();
    const uint32_t k = k_low + (place.stage * Layout::kGroupBytes >> 4);
#pragma unroll
    for (int step = 0; step < kDim / 16; step++) {
      const uint32_t at =
          (step / Tile::kStepsPerPanel * kPanelBytes + step % Tile::kStepsPerPanel * 32) >> 4;
      cuda::WgmmaShared<cuda::F16, kGroupCells>::multiply(s, Tile::descriptor(q_low + at),
                                                          Tile::descriptor(k + at), step != 0);
    }
    cuda::wgmma_commit();
  }

  /// Reads the factors of a group, whose product is complete, and hands its buffer back.
  FOVEA_DEVICE void release(float (&factor)[R::kOwn], int stage) const {
    const uint32_t from = factors + stage * Layout::kFactorBytes;
#pragma unroll
    for (int k = 0; k < R::kOwn; k++)
      factor[k] = __uint_as_float(cuda::shared_load_4(from + 16 * k));
    __syncwarp();
    cuda::mbarrier_arrive_if(threadIdx.x % 32 == 0, shared + Layout::kEmpty + 8 * stage);
  }

  FOVEA_DEVICE void reduce(const float (&s)[32], float (&factor)[R::kOwn], int group) const {
#pragma unroll
    for (int k = 0; k < R::kOwn; k++) factor[k] *= q_factor;
    // Rounded on its own wherever it is used, so that equal blocks have equal terms.
    const auto product = [&](int k, int t) { return __fmul_rn(s[R::at(k, t)], factor[k]); };
    // Cells that do not exist have no term.
    const auto existing = [&](int k, int t) {
      const int i = t / 4 * 2 + t % 2, h = t / 2 % 2, quad = threadIdx.x % 4;
      const bool exists =
          group * kGroupCells + (4 * k + quad) * kCells + i < cells && cell + h < p.q_count;
      return exists ? product(k, t) : -INFINITY;
    };
    float result[R::kResults];
    if (rows_whole && (group + 1) * kGroupCells <= cells)
      R::sums(result, product);
    else
      R::sums(result, existing);
    const int column = group * kBlocks;
    bool fits = true;
#pragma unroll
    for (int m = 0; m < R::kResults; m++)
      fits =
          fits && ((result[m] >= R::kLeast && result[m] <= R::kMost) || column + 4 * m >= columns);
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
    const bool writes = kCells == 4 || (threadIdx.x & 8) == 0;
#pragma unroll
    for (int m = 0; m < R::kResults; m++)
      if (writes && column + 4 * m < columns) scores[column + 4 * m] = score[m];
  }
};

/// The work that is left to a thread block, as turns of consecutive tiles.
struct Share {
  int tile, turn, left;

  FOVEA_DEVICE explicit Share(const Score& p) {
    const long long begin = p.work * blockIdx.x / gridDim.x;
    left = static_cast<int>(p.work * (blockIdx.x + 1) / gridDim.x - begin);
    tile = static_cast<int>(begin / p.k_turns);
    turn = static_cast<int>(begin % p.k_turns);
  }
};
/// What a thread block does of one tile.
struct Piece {
  int plane, tile, plane_kv;
  int columns, cells, last_group;  // of keys
  int begin, end;                  // groups, whole turns; none where a row keeps every block
};
/// The next piece of a share that has some work left.
FOVEA_DEVICE Piece take(const Score& p, Share& share) {
  Piece w;
  w.plane = share.tile / p.q_tiles;
  w.tile = share.tile - w.plane * p.q_tiles;
  const int batch = w.plane / p.call.heads_q;
  w.plane_kv =
      batch * p.call.heads_kv + w.plane % p.call.heads_q / (p.call.heads_q / p.call.heads_kv);
  const int length = kv_length(p.call, batch);
  w.columns = divide_up(length, p.call.block);
  w.cells = divide_up(length, kCellTokens);
  // Behind it comes the last group again, as cells that do not exist, until the turn is full.
  w.last_group = divide_up(w.cells, kGroupCells) - 1;
  const int first = min(w.columns, p.protected_blocks);
  const int kept = min(kept_blocks(w.columns, first, p.call.sparsity), p.call.most);
  const int turns = kept == w.columns ? 0 : w.last_group / kTurnGroups + 1;
  const int taken = min(share.left, p.k_turns - share.turn);
  w.begin = kTurnGroups * share.turn;
  w.end = max(kTurnGroups * min(share.turn + taken, turns), w.begin);
  share.tile++;
  share.turn = 0;
  share.left -= taken;
  return w;
}

/// lane / 4. With blocks of 128 tokens it is read anew, so that what follows from it takes no
/// register meanwhile; with blocks of 64 ptxas spills then.
template <int kCells>
FOVEA_DEVICE int row_of(int lane) {
  if constexpr (kCells == 8) asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane / 4;
}

template <int kDim, int kCells>
__global__ void __launch_bounds__(kScoreThreads, 1) score_kernel(const __grid_constant__ Score p) {
  using Layout = Ring<kDim>;
  using R = Reduce<kCells>;
  extern __shared__ __align__(1024) uint8_t storage[];
  const uint32_t shared = cuda::shared_address(storage);
  const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      cuda::mbarrier_init(shared + Layout::kQFull + 8 * i, 1);
      cuda::mbarrier_init(shared + Layout::kQEmpty + 8 * i, kConsumers / 32);
    }
    for (int stage = 0; stage < Layout::kStages; stage++) {
      cuda::mbarrier_init(shared + Layout::kFull + 8 * stage, 1);
      cuda::mbarrier_init(shared + Layout::kEmpty + 8 * stage, kConsumers / 32);
    }
    cuda::mbarrier_init_fence();
  }
  __syncthreads();
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();

  Share share(p);
  Place<2> tile;
  Place<Layout::kStages> place;
  if (warp == kConsumers / 32) {
    if (lane != 0) return;
#pragma unroll 1
    while (share.left > 0) {
      const Piece w = take(p, share);
      if (w.begin == w.end) continue;
      const int q_group = w.tile * kWarpgroups;
      const uint32_t bytes = min(kWarpgroups, p.q_groups - q_group) * Layout::kGroupBytes;
      const uint32_t q_full = shared + Layout::kQFull + 8 * tile.stage;
      cuda::mbarrier_wait(shared + Layout::kQEmpty + 8 * tile.stage, tile.parity ^ 1);
      cuda::mbarrier_expect(q_full, bytes);
      cuda::bulk_load(shared + tile.stage * Layout::kTileBytes,
                      p.q_cells + (static_cast<long long>(w.plane) * p.q_groups + q_group) *
                                      Layout::kGroupBytes,
                      bytes, q_full);
      tile.advance();
#pragma unroll 1
      for (int group = w.begin; group < w.end; group++) {
        const uint32_t full = shared + Layout::kFull + 8 * place.stage;
        const long long source =
            static_cast<long long>(w.plane_kv) * p.k_groups + min(group, w.last_group);
        cuda::mbarrier_wait(shared + Layout::kEmpty + 8 * place.stage, place.parity ^ 1);
        cuda::mbarrier_expect(full, Layout::kGroupBytes + Layout::kFactorBytes);
        cuda::bulk_load(shared + Layout::kKeys + place.stage * Layout::kGroupBytes,
                        p.k_cells + source * Layout::kGroupBytes, Layout::kGroupBytes, full);
        cuda::bulk_load(shared + Layout::kFactors + place.stage * Layout::kFactorBytes,
                        p.k_factors + source * kGroupFactors, Layout::kFactorBytes, full);
        place.advance();
      }
    }
    return;
  }

  const int warpgroup = warp / 4, quarter = warp % 4;
#pragma unroll 1
  while (share.left > 0) {
    const Piece w = take(p, share);
    const int begin = cuda::uniform(w.begin), end = cuda::uniform(w.end);
    if (begin == end) continue;
    const int first_cell = w.tile * kTileCells + warpgroup * kGroupCells;
    const int block = row_of<kCells>(lane) / R::kRowLanes;
    const int cell = first_cell + quarter * 16 + block * kCells;
    const int row = cell / kCells;
    const bool inside = row < p.rows;
    const long long q_group = static_cast<long long>(w.plane) * p.q_groups + cell / kGroupCells;
    const float q_factor =
        inside ? p.q_factors[q_group * kGroupFactors + cell % kGroupCells / kCells] * p.call.scale *
                     1.4426950408889634f
               : 0.f;
    const int first_column = Consumer<kDim, kCells>::first_column();
    Consumer<kDim, kCells> c{
        p,
        shared,
        cuda::Tile::descriptor_low(
            shared + tile.stage * Layout::kTileBytes + warpgroup * Layout::kGroupBytes, 16),
        cuda::Tile::descriptor_low(shared + Layout::kKeys, 16),
        shared + Layout::kFactors + 4 * (lane % 4),
        w.cells,
        inside ? w.columns - first_column : 0,
        cell + lane / 4 % R::kRowLanes * 2,
        q_factor,
        p.scores + (static_cast<long long>(w.plane) * p.rows + row) * p.columns + first_column,
        first_cell + kGroupCells <= p.q_count};
    float a[32], b[32];
    int stage = place.stage;  // to reduce
    const auto multiply = [&](float(&s)[32]) {
      c.multiply(s, place);
      place.advance();
    };
    const auto reduce = [&](float(&s)[32], int group) {
      cuda::pin(s);
      float factor[R::kOwn];
      c.release(factor, stage);
      stage = stage + 1 == Layout::kStages ? 0 : stage + 1;
      c.reduce(s, factor, group);
    };
    cuda::mbarrier_wait(shared + Layout::kQFull + 8 * tile.stage, tile.parity);
#pragma unroll 1
    for (int group = begin; group < end; group += kTurnGroups) {
      multiply(a);
      multiply(b);
      cuda::wgmma_wait<1>();
      reduce(a, group);
      multiply(a);
      cuda::wgmma_wait<1>();
      reduce(b, group + 1);
      multiply(b);
      cuda::wgmma_wait<1>();
      reduce(a, group + 2);
      cuda::wgmma_wait<0>();
      reduce(b, group + 3);
    }
    cuda::mbarrier_arrive_if(lane == 0, shared + Layout::kQEmpty + 8 * tile.stage);
    tile.advance();
  }
}

}  // namespace fovea::block_topk_sm90
