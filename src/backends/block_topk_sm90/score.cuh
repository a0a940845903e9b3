// Scores of all pairs of blocks.
//
// A tile is 256 cells of queries of one head, 64 for each of four warpgroups. Every multiprocessor
// has one thread block, which takes an equal share of all tiles times groups of 128 cells of keys;
// a seventeenth warp copies the queries of the next tile and groups ahead.
//
// The warpgroups take turns at the tensor cores, one product of 64 x 128 cells each: while one
// multiplies, the others reduce theirs to scores (1 to 2 % faster than without turns). What follows
// the sums of a thread, the addition over lanes and the logarithm, runs beside the next product.
#pragma once

#include "src/backends/block_topk_sm90/choose.cuh"
#include "src/backends/block_topk_sm90/pool.cuh"
#include "src/backends/block_topk_sm90/reduce.cuh"
#include "src/cuda/mma.cuh"
#include "src/cuda/wgmma.cuh"

namespace fovea::block_topk_sm90 {

inline constexpr int kWarpgroups = 4;
inline constexpr int kConsumers = 128 * kWarpgroups;
inline constexpr int kScoreThreads = kConsumers + 32;
inline constexpr int kTileCells = kQueryCells * kWarpgroups;

struct Score {
  Call call;
  const std::uint8_t *q_cells, *k_cells;
  const float *q_factors, *k_factors;
  float* scores;
  int q_count;             // cells of a head
  int q_groups, k_groups;  // of a head
  int rows, columns;
  int protected_blocks;
  int q_tiles;     // of a head
  long long work;  // groups of keys of all tiles
};

/// The groups of keys of consecutive tiles that a thread block takes.
struct Share {
  long long begin;
  int groups;

  FOVEA_DEVICE explicit Share(const Score& p) {
    begin = p.work * blockIdx.x / gridDim.x;
    groups = static_cast<int>(p.work * (blockIdx.x + 1) / gridDim.x - begin);
  }
};
/// What a thread block does of one tile.
struct Piece {
  int plane, tile, plane_kv;
  int columns, cells;  // of keys
  int begin, end;      // groups; none where a row keeps every block
  int missed;          // whether a plain sum cannot hold some score of this warp's last group
};
/// The next piece of the share, of whose groups `done` are taken; advances `done`. Some must be
/// left.
FOVEA_DEVICE Piece take(const Score& p, int& done) {
  const Share share(p);
  const int tile = static_cast<int>((share.begin + done) / p.k_groups);
  const int group = static_cast<int>((share.begin + done) % p.k_groups);
  Piece w;
  w.plane = tile / p.q_tiles;
  w.tile = tile - w.plane * p.q_tiles;
  const int batch = w.plane / p.call.heads_q;
  w.plane_kv =
      batch * p.call.heads_kv + w.plane % p.call.heads_q / (p.call.heads_q / p.call.heads_kv);
  const int length = kv_length(p.call, batch);
  w.columns = divide_up(length, p.call.block);
  w.cells = divide_up(length, kCellTokens);
  const int first = min(w.columns, p.protected_blocks);
  const int kept = min(kept_blocks(w.columns, first, p.call.sparsity), p.call.most);
  const int groups = kept == w.columns ? 0 : divide_up(w.cells, kKeyCells);
  const int taken = min(share.groups - done, p.k_groups - group);
  w.begin = group;
  w.end = max(min(group + taken, groups), group);
  done += taken;
  return w;
}

/// Shared memory of a thread block, in bytes from a multiple of 1024: two tiles of queries, a ring
/// of groups of keys.
template <int kDim>
struct Ring {
  static constexpr uint32_t kQueryBytes = kQueryCells * kDim * 2;
  static constexpr uint32_t kKeyBytes = kKeyCells * kDim * 2;
  static constexpr uint32_t kFactorBytes = kKeyFactors * 4;
  static constexpr int kStages = kDim == 128 ? 3 : 8;
  static constexpr uint32_t kTileBytes = kWarpgroups * kQueryBytes;
  static constexpr uint32_t kKeys = 2 * kTileBytes;
  static constexpr uint32_t kFactors = kKeys + kStages * kKeyBytes;
  static constexpr uint32_t kQFull = kFactors + kStages * kFactorBytes;
  static constexpr uint32_t kQEmpty = kQFull + 16;
  static constexpr uint32_t kFull = kQEmpty + 16;
  static constexpr uint32_t kEmpty = kFull + 8 * kStages;
  static constexpr uint32_t kPieces = kEmpty + 8 * kStages;  // of each warp
  static constexpr uint32_t kMissed = kPieces + kConsumers / 32 * sizeof(Piece);
  static constexpr uint32_t kBytes = kMissed + kConsumers;
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

/// One thread: copies what the share needs, in the order in which it is read.
template <int kDim>
FOVEA_DEVICE void copy_ahead(const Score& p, uint32_t shared) {
  using Layout = Ring<kDim>;
  Place<2> tile;
  Place<Layout::kStages> place;
  const int groups = Share(p).groups;
#pragma unroll 1
  for (int done = 0; done < groups;) {
    const Piece w = take(p, done);
    if (w.begin == w.end) continue;
    const int q_group = w.tile * kWarpgroups;
    const uint32_t bytes = min(kWarpgroups, p.q_groups - q_group) * Layout::kQueryBytes;
    const uint32_t q_full = shared + Layout::kQFull + 8 * tile.stage;
    cuda::mbarrier_wait(shared + Layout::kQEmpty + 8 * tile.stage, tile.parity ^ 1);
    cuda::mbarrier_expect(q_full, bytes);
    cuda::bulk_load(
        shared + tile.stage * Layout::kTileBytes,
        p.q_cells + (static_cast<long long>(w.plane) * p.q_groups + q_group) * Layout::kQueryBytes,
        bytes, q_full);
    tile.advance();
#pragma unroll 1
    for (int group = w.begin; group < w.end; group++) {
      const uint32_t full = shared + Layout::kFull + 8 * place.stage;
      const long long source = static_cast<long long>(w.plane_kv) * p.k_groups + group;
      cuda::mbarrier_wait(shared + Layout::kEmpty + 8 * place.stage, place.parity ^ 1);
      cuda::mbarrier_expect(full, Layout::kKeyBytes + Layout::kFactorBytes);
      cuda::bulk_load(shared + Layout::kKeys + place.stage * Layout::kKeyBytes,
                      p.k_cells + source * Layout::kKeyBytes, Layout::kKeyBytes, full);
      cuda::bulk_load(shared + Layout::kFactors + place.stage * Layout::kFactorBytes,
                      p.k_factors + source * kKeyFactors, Layout::kFactorBytes, full);
      place.advance();
    }
  }
}

/// What a thread knows of its tile.
template <int kDim, int kCells>
struct TileView {
  using R = Reduce<kCells>;
  using Layout = Ring<kDim>;
  static constexpr int kBlocks = kKeyCells / kCells;

  const Score& p;
  Piece& w;         // of this warp, in shared memory
  uint32_t q_low;   // of this warpgroup's descriptor
  int cells;        // of keys
  bool rows_whole;  // every block of queries of this warp that exists is whole
  bool rows_plain;  // and has the factor 1

  // Where a thread's rows and columns lie is computed again whenever it is needed: accumulators
  // leave no registers to keep it.

  /// First cell of queries of this thread's row of blocks.
  FOVEA_DEVICE int cell() const {
    return w.tile * kTileCells + static_cast<int>(threadIdx.x / 32) * 16 +
           static_cast<int>(threadIdx.x / 4 % 8) / R::kRowLanes * kCells;
  }
  FOVEA_DEVICE int row() const { return cell() / kCells; }
  FOVEA_DEVICE std::uint8_t* missed() const {
    return reinterpret_cast<std::uint8_t*>(&w - threadIdx.x / 32) + Layout::kMissed -
           Layout::kPieces;
  }
  FOVEA_DEVICE float q_factor() const {
    const long long group = static_cast<long long>(w.plane) * p.q_groups + cell() / kQueryCells;
    return row() < p.rows ? p.q_factors[group * kQueryFactors + cell() % kQueryCells / kCells]
                          : 1.f;
  }
  FOVEA_DEVICE static int first_column() {
    return 4 * R::mine(0) + static_cast<int>(threadIdx.x % 4);
  }
  /// Columns of the row, and their scores, from this thread's first one on.
  FOVEA_DEVICE int columns() const { return row() < p.rows ? w.columns - first_column() : 0; }
  FOVEA_DEVICE float* scores(int column) const {
    return p.scores + (static_cast<long long>(w.plane) * p.rows + row()) * p.columns +
           (first_column() + column);
  }

  /// The product with the group of keys at `keys`.
  FOVEA_DEVICE void multiply(float (&s)[R::kValues], uint32_t keys) const {
    using cuda::Tile;
    const uint32_t k = cuda::uniform(Tile::descriptor_low(keys, 16));
    // Accumulators begin as nothing, so that they occupy no registers before.
#pragma unroll
    for (int n = 0; n < R::kValues; n++) asm volatile("" : "=f"(s[n]));
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDim / 16; step++) {
      const uint32_t panel = step / Tile::kStepsPerPanel,
                     in_panel = step % Tile::kStepsPerPanel * 32;
      cuda::WgmmaShared<cuda::F16, kKeyCells>::multiply(
          s, Tile::descriptor(q_low + ((panel * kQueryCells * Tile::kRowBytes + in_panel) >> 4)),
          Tile::descriptor(k + ((panel * kKeyCells * Tile::kRowBytes + in_panel) >> 4)), step != 0);
    }
    cuda::wgmma_commit();
  }

  FOVEA_DEVICE static float k_factor(uint32_t factors, int k) {
    return __uint_as_float(cuda::shared_load_4(factors + 16 * k));
  }
  /// Whether the factors of the blocks of a group, and of this warp's rows, are 1.
  FOVEA_DEVICE bool plain(uint32_t factors) const {
    bool ones = true;
#pragma unroll
    for (int k = 0; k < R::kOwn; k++) ones &= k_factor(factors, k) == 1.f;
    return __all_sync(~0u, ones) && rows_plain;
  }

  /// Products of averages to logarithms of terms. Of a block that is not whole, cells that do not
  /// exist have no term; blocks that do not exist at all are never written.
  FOVEA_DEVICE void complete(float (&s)[R::kValues], bool as_it_is, uint32_t factors,
                             int group) const {
    if (!as_it_is) {
      const float q = q_factor();
#pragma unroll
      for (int k = 0; k < R::kOwn; k++) {
        const float x = q * k_factor(factors, k);
#pragma unroll
        for (int t = 0; t < R::kTerms; t++) s[k * R::kTerms + t] *= x;
      }
    }
    if (!rows_whole || (cells % kCells != 0 && (group + 1) * kKeyCells > cells)) {
      int left[2];  // cells of keys from this thread's first block on, for either row
#pragma unroll
      for (int h = 0; h < 2; h++) left[h] = cells_left(group, h);
#pragma unroll
      for (int n = 0; n < R::kValues; n++) {
        const int k = n / R::kTerms, t = n % R::kTerms, h = t / 2 % 2;
        if (4 * k * kCells + R::key_cell(t) >= left[h]) s[n] = -INFINITY;
      }
    }
  }
  FOVEA_DEVICE int cells_left(int group, int h) const {
    const int row = cell() + static_cast<int>(threadIdx.x / 4 % R::kRowLanes) * 2 + h;
    const int left = cells - (group * kBlocks + static_cast<int>(threadIdx.x % 4)) * kCells;
    return row < p.q_count ? left : 0;
  }

  /// Writes the scores of a group, and whether some of the warp's do not hold; `missed` tells then
  /// which of a thread's, as bits.
  FOVEA_DEVICE void finish(const float (&sum)[R::kOwn], int group) const {
    float result[R::kEnds];
    R::fold(result, sum);
    float* const to = scores(0);
    const int end = columns();
    unsigned bits = 0;
#pragma unroll
    for (int m = 0; m < R::kEnds; m++) {
      const int column = group * kBlocks + 4 * m;
      const float score = cuda::log2_fast(result[m]);
      const bool holds = result[m] >= R::kLeast & result[m] <= R::kMost, exists = column < end;
      if (exists & holds) to[column] = score;
      bits |= exists & !holds ? 1u << m : 0;
    }
    const bool any = __any_sync(~0u, bits != 0);
    if (any) missed()[threadIdx.x] = static_cast<std::uint8_t>(bits);
    if (threadIdx.x % 32 == 0) w.missed = any;
  }

  /// Eight terms of block k from term `first` on, as logarithms: products by mma.sync, whose
  /// accumulators lie as those of wgmma do.
  FOVEA_DEVICE void terms(float (&d)[2][4], int k, int first, int group, uint32_t keys,
                          uint32_t factors) const {
    const int lane = threadIdx.x % 32;
    const std::uint8_t* queries =
        p.q_cells +
        (static_cast<long long>(w.plane) * p.q_groups + w.tile * kWarpgroups) *
            Layout::kQueryBytes +
        threadIdx.x / 128 * Layout::kQueryBytes + threadIdx.x / 32 % 4 * 16 * cuda::Tile::kRowBytes;
    const int key = 2 * (k * R::kTerms + first) + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int e = 0; e < 8; e++) d[e / 4][e % 4] = 0.f;
#pragma unroll 1
    for (int step = 0; step < kDim / 16; step++) {
      uint32_t a[4], b[4];
#pragma unroll
      for (int n = 0; n < 4; n++)
        a[n] = *reinterpret_cast<const uint32_t*>(
            queries + cuda::Tile::offset(lane / 4 + n % 2 * 8, 2 * step + n / 2, kQueryCells) +
            lane % 4 * 4);
      cuda::ldmatrix(b, keys + cuda::Tile::offset(key, 2 * step + lane / 8 % 2, kKeyCells));
      cuda::mma<cuda::F16>(d[0], a, b[0], b[1]);
      cuda::mma<cuda::F16>(d[1], a, b[2], b[3]);
    }
    const float x = q_factor() * k_factor(factors, k);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const bool exists =
          4 * k * kCells + first / 2 + R::key_cell(e) < cells_left(group, e / 2 % 2);
      d[e / 4][e % 4] = exists ? d[e / 4][e % 4] * x : -INFINITY;
    }
  }
  /// Where sums of a group do not hold: the scores that finish did not write, relative to the
  /// largest term of their pair of blocks.
  FOVEA_DEVICE void rescue(int group, uint32_t keys, uint32_t factors) const {
#pragma unroll 1
    for (int k = 0; k < R::kOwn; k++) {
      float largest = -INFINITY, sum = 0.f;
#pragma unroll 1
      for (int pass = 0; pass < 2; pass++) {
#pragma unroll 1
        for (int first = 0; first < R::kTerms; first += 8) {
          float d[2][4];
          terms(d, k, first, group, keys, factors);
#pragma unroll
          for (int e = 0; e < 8; e++)
            if (pass == 0)
              largest = fmaxf(largest, d[e / 4][e % 4]);
            else
              sum += cuda::exp2_fast(d[e / 4][e % 4] - largest);
        }
        if (pass == 0) largest = R::maximum(largest);
      }
      const float score = largest + __log2f(R::total(sum));
      const unsigned bits = missed()[threadIdx.x];
#pragma unroll
      for (int m = 0; m < R::kEnds; m++)
        if (bits >> m & 1 && R::mine(m) == k) *scores(group * kBlocks + 4 * m) = score;
    }
  }
};

/// The turn of a warpgroup at the tensor cores, and that of the next one.
FOVEA_DEVICE void take_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + warpgroup) : "memory");
}
FOVEA_DEVICE void pass_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + (warpgroup + 1) % kWarpgroups) : "memory");
}

template <int kDim, int kCells>
__global__ void __launch_bounds__(kScoreThreads, 1) score_kernel(const __grid_constant__ Score p) {
  using Layout = Ring<kDim>;
  using R = Reduce<kCells>;
  extern __shared__ __align__(1024) uint8_t storage[];
  const uint32_t shared = cuda::shared_address(storage);
  const int lane = threadIdx.x % 32, warp = cuda::uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      cuda::mbarrier_init(shared + Layout::kQFull + 8 * i, 1);
      cuda::mbarrier_init(shared + Layout::kQEmpty + 8 * i, kConsumers / 32);
    }
    for (int stage = 0; stage < Layout::kStages; stage++) {
      cuda::mbarrier_init(shared + Layout::kFull + 8 * stage, 1);
      cuda::mbarrier_init(shared + Layout::kEmpty + 8 * stage, kConsumers);
    }
    cuda::mbarrier_init_fence();
  }
  __syncthreads();
  cuda::wait_for_earlier_launches();
  cuda::allow_next_launch();
  if (warp == kConsumers / 32) {
    if (lane == 0) copy_ahead<kDim>(p, shared);
    return;
  }

  const int warpgroup = warp / 4;
  Piece& w = reinterpret_cast<Piece*>(storage + Layout::kPieces)[warp];
  if (warpgroup == kWarpgroups - 1) pass_turn(warpgroup);  // the first turn is free
  Place<Layout::kStages> place;
  Place<2> tile;
#pragma unroll 1
  for (int done = 0; done < Share(p).groups;) {
    {
      const Piece next = take(p, done);
      __syncwarp();  // all have read the last one
      if (lane == 0) w = next;
      __syncwarp();
    }
    const int begin = cuda::uniform(w.begin), end = cuda::uniform(w.end);
    if (begin == end) continue;
    TileView<kDim, kCells> t{p, w};
    t.q_low = cuda::uniform(cuda::Tile::descriptor_low(
        shared + tile.stage * Layout::kTileBytes + warpgroup * Layout::kQueryBytes, 16));
    t.cells = cuda::uniform(w.cells);
    t.rows_whole = p.q_count % kCells == 0 || w.tile * kTileCells + (warp + 1) * 16 <= p.q_count;
    t.rows_plain = __all_sync(~0u, t.q_factor() == 1.f);
    cuda::mbarrier_wait(shared + Layout::kQFull + 8 * tile.stage, tile.parity);

    float sum[R::kOwn];
    // Ends with the group before the present one, beside whose product its scores were written.
    const auto leave = [&](int group) {
      const uint32_t stage =
          cuda::uniform(place.stage == 0 ? Layout::kStages - 1 : place.stage - 1);
      __syncwarp();
      if (w.missed)
        t.rescue(group, shared + Layout::kKeys + stage * Layout::kKeyBytes,
                 shared + Layout::kFactors + stage * Layout::kFactorBytes + 4 * (lane % 4));
      // Every thread, as each has read factors: no slower than one for its warp.
      cuda::mbarrier_arrive(shared + Layout::kEmpty + 8 * stage);
    };
#pragma unroll 1
    for (int group = begin; group < end; group++) {
      cuda::mbarrier_wait(shared + Layout::kFull + 8 * place.stage, place.parity);
      const uint32_t stage = cuda::uniform(place.stage);
      const uint32_t factors =
          shared + Layout::kFactors + stage * Layout::kFactorBytes + 4 * (lane % 4);
      float s[R::kValues];
      take_turn(warpgroup);
      t.multiply(s, shared + Layout::kKeys + stage * Layout::kKeyBytes);
      pass_turn(warpgroup);
      const bool plain = t.plain(factors);
      if (group > begin) t.finish(sum, group - 1);
      cuda::wgmma_wait<0>();
      cuda::pin(s);
      t.complete(s, plain, factors, group);
#pragma unroll
      for (int n = 0; n < R::kValues; n++) s[n] = cuda::exp2_fast(s[n]);
      R::add(sum, s);
      if (group > begin) leave(group - 1);
      place.advance();
    }
    cuda::mbarrier_arrive_if(lane == 0, shared + Layout::kQEmpty + 8 * tile.stage);
    tile.advance();
    t.finish(sum, end - 1);
    leave(end - 1);
  }
  if (warpgroup == 0) take_turn(warpgroup);
}

}  // namespace fovea::block_topk_sm90
