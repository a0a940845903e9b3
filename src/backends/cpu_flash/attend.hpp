// The attention loop of one superblock of queries: "lanes are queries".
//
// A tile is up to kTileVectors vectors of queries. Its scores are kept transposed, [key][lanes], so
// that row maxima, exponentials, sums and rescaling are all vertical and every operand but the
// broadcast strip is a vector of queries. For one tile and one block of keys:
//
//   S[key][q]  = K strip x Q panel (+ mask terms), row maxima taken as the register tile finishes
//   P[key][q]  = 2^(S - max), block row sums
//   O[dim][q]  = alpha * O + (V strip x P panel)
//
// Sums run over at most kMaxBlockKeys keys from zero and are then added to the running ones: two
// levels, for O and for the row sums. The order of keys depends on the problem only, and every lane
// is independent of the others, so results do not depend on how rows are split over workers.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/mask_tile.hpp"
#include "src/backends/cpu_flash/pack.hpp"
#include "src/backends/cpu_flash/tile.hpp"
#include "src/backends/cpu_flash/tile_multiply.hpp"
#include "src/simd/exp2.hpp"

namespace fovea::cpu_flash {

template <class P, int NR>
struct TileAttention {
  using V = typename P::Vec;
  using Float = typename V::Float;
  static constexpr int kRows = V::kTileRows;
  static constexpr int kLanes = NR * V::kLanes;

  // Words that one running sum of a score takes; a single one over a long head loses more than the
  // contract allows for large scores.
  static constexpr int64_t kScoreRun = 64;

  // One register tile of scores, of whose keys `valid` exist: the scaled product and its terms, in
  // place, and its maxima.
  template <bool kMasked>
  static FOVEA_INLINE void score_strip(const float* k, const float* q, int64_t words, int64_t valid,
                                       Float score_scale, const float* terms, float* scores,
                                       Float (&max)[NR]) {
    tile_multiply<P, NR, Finish::store>(k, q, words < kScoreRun ? words : kScoreRun, scores);
    for (int64_t done = kScoreRun; done < words; done += kScoreRun) {
      const int64_t left = words - done;
      tile_multiply<P, NR, Finish::add>(k + done * kRows, q + done * kLanes,
                                        left < kScoreRun ? left : kScoreRun, scores);
    }
    for (int64_t i = 0; i < valid; ++i) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        float* const at = scores + i * kLanes + r * V::kLanes;
        Float s = V::load(at);
        if constexpr (P::kGroup == 2) s = V::mul(s, score_scale);
        if constexpr (kMasked) {
          const Float term = V::load(terms + i * kLanes + r * V::kLanes);
          const Float hidden = V::set(-kInfinity);
          s = V::select(V::equal(term, hidden), hidden, V::add(s, term));
        }
        if constexpr (kMasked || P::kGroup == 2) V::store(at, s);
        max[r] = V::max(max[r], s);
      }
    }
  }

  template <bool kMasked>
  static FOVEA_INLINE void score_block(const Params& params, Tile& tile, const KeyRange& keys,
                                       const float* terms, float* scores, Float (&max)[NR]) {
    const int64_t words = (params.head_dim + P::kGroup - 1) / P::kGroup;
    const Float score_scale = V::set(params.scale * kLog2E);
    int64_t p = keys.begin;
    for (; p + kRows <= keys.end; p += kRows) {
      tile.fetch_ahead();
      score_strip<kMasked>(keys.k + p * words, tile.q, words, kRows, score_scale,
                           kMasked ? terms + p * kLanes : nullptr, scores + p * kLanes, max);
    }
    if (p < keys.end) {
      score_strip<kMasked>(keys.k + p * words, tile.q, words, keys.end - p, score_scale,
                           kMasked ? terms + p * kLanes : nullptr, scores + p * kLanes, max);
    }
  }

  // Scores become probabilities in place (pairs fill the first half); adds their sums to `sum`.
  static FOVEA_INLINE void exponentials(const KeyRange& keys, const Float (&max)[NR], float* scores,
                                        Float (&sum)[NR]) {
    if constexpr (P::kGroup == 1) {
      for (int64_t p = keys.begin; p < keys.end; ++p) {
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          float* s = scores + p * kLanes + r * V::kLanes;
          const Float e = simd::exp2_nonpositive<V>(V::sub(V::load(s), max[r]));
          V::store(s, e);
          sum[r] = V::add(sum[r], e);
        }
      }
    } else {
      for (int64_t p = keys.begin; p < keys.end; p += 2) {
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          const float* s = scores + p * kLanes + r * V::kLanes;
          const Float even = simd::exp2_nonpositive<V>(V::sub(V::load(s), max[r]));
          Float odd = V::set(0.f);
          if (p + 1 < keys.end)
            odd = simd::exp2_nonpositive<V>(V::sub(V::load(s + kLanes), max[r]));
          V::store(scores + p / 2 * kLanes + r * V::kLanes, V::pair(even, odd));
          sum[r] = V::add(sum[r], V::add(even, odd));
        }
      }
    }
  }

  static FOVEA_INLINE void value_block(Tile& tile, const KeyRange& keys, int64_t dim_v,
                                       int64_t strip_floats, const float* probabilities,
                                       const float* alpha) {
    const bool started = tile.started;
    const int64_t first = keys.begin / P::kGroup;
    const int64_t words = (keys.end + P::kGroup - 1) / P::kGroup - first;
    const float* v = keys.v + first * kRows;
    float* o = tile.o;
    for (int64_t d = 0; d < dim_v; d += kRows) {
      tile.fetch_ahead();
      if (started) {
        tile_multiply<P, NR, Finish::rescale>(v, probabilities + first * kLanes, words, o, alpha);
      } else {
        tile_multiply<P, NR, Finish::store>(v, probabilities + first * kLanes, words, o);
      }
      v += strip_floats;
      o += kRows * kLanes;
    }
  }

  // The same sums where some pair is hidden and some value is NaN or infinite: a hidden pair is
  // skipped by selection, because 0 * NaN would reach the row. No terms: none of keys is hidden.
  static void value_block_selected(const Tile& tile, const KeyRange& keys, int64_t dim_v,
                                   int64_t strip_floats, const float* probabilities,
                                   const float* terms, const Float (&alpha)[NR]) {
    const Float hidden = V::set(-kInfinity);
    for (int64_t d = 0; d < dim_v; ++d) {
      const float* column = keys.v + d / kRows * strip_floats + d % kRows;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        Float acc = V::set(0.f);
        for (int64_t p = keys.begin; p < keys.end; ++p) {
          Float value = V::set(column[p / P::kGroup * kRows]);
          Float weight = V::load(probabilities + p / P::kGroup * kLanes + r * V::kLanes);
          if constexpr (P::kGroup == 2) {
            value = p % 2 == 0 ? V::even_half(value) : V::odd_half(value);
            weight = p % 2 == 0 ? V::even_half(weight) : V::odd_half(weight);
          }
          const Float sum = V::fma(value, weight, acc);
          acc = terms == nullptr
                    ? sum
                    : V::select(V::equal(V::load(terms + p * kLanes + r * V::kLanes), hidden), acc,
                                sum);
        }
        float* target = tile.o + d * kLanes + r * V::kLanes;
        V::store(target, tile.started ? V::fma(alpha[r], V::load(target), acc) : acc);
      }
    }
  }

  // Everything one tile does with one block.
  [[gnu::noinline]] static void block(const Params& params, const Geometry& geometry, Tile& tile,
                                      const KeyRange& keys, const float* terms, bool select_values,
                                      float* scores) {
    Float max[NR], old_max[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      max[r] = old_max[r] = V::load(tile.max + r * V::kLanes);
    }
    if (terms != nullptr) {
      score_block<true>(params, tile, keys, terms, scores, max);
    } else {
      score_block<false>(params, tile, keys, terms, scores, max);
    }

    Float alpha[NR], sum[NR], base[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      V::store(tile.max + r * V::kLanes, max[r]);
      // A row that has seen no key yet: -inf - 0 gives weights of 0, where -inf - -inf is NaN.
      base[r] = V::select(V::equal(max[r], V::set(-kInfinity)), V::set(0.f), max[r]);
      // Exactly 1 where the maximum stays: the polynomial's error would add up over the blocks.
      alpha[r] = V::select(V::equal(old_max[r], max[r]), V::set(1.f),
                           simd::exp2_nonpositive<V>(V::sub(old_max[r], base[r])));
      sum[r] = V::set(0.f);
    }
    exponentials(keys, base, scores, sum);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      float* target = tile.sum + r * V::kLanes;
      V::store(target, V::fma(alpha[r], V::load(target), sum[r]));
    }
    const int64_t strip_floats = geometry.v_strip_floats;
    if (select_values) {
      value_block_selected(tile, keys, params.dim_v, strip_floats, scores, terms, alpha);
    } else {
      alignas(64) float factors[kLanes];
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) V::store(factors + r * V::kLanes, alpha[r]);
      value_block(tile, keys, params.dim_v, strip_floats, scores, factors);
    }
    tile.started = true;
  }
};

// The shared state of one superblock.
template <class P>
struct Superblock {
  using V = typename P::Vec;
  static constexpr int kMaxTiles = 16;

  const Params& params;
  const Geometry& geometry;
  const Segment& segment;
  const int64_t head_q;
  const PackedBlocks& packed;
  float* scores;
  float* terms;
  Diagonal diagonal;
  bool row_masks = false;
  Tile tiles[kMaxTiles];
  int num_tiles = 0;

  // Keys first_key..last_key - 1 of one packed block; `full`: no mask hides any of them.
  template <int NR>
  void tile_block(Tile& tile, int64_t block, int64_t first_key, int64_t last_key, bool full) {
    const BlockInfo& info = packed.info[block];
    const int64_t block_key = block * geometry.block_keys;
    KeyRange keys;
    keys.k = packed.k + block * geometry.k_block_floats;
    keys.v = packed.v + block * geometry.v_block_floats;
    keys.end = packed_below(info, info.count, last_key);
    int64_t begin = packed_below(info, keys.end, first_key);
    // Leave out packed keys that no row of the tile sees by position.
    bool partial = info.biased != 0 || (row_masks && !full);
    const int64_t last_row = tile.row + tile.rows - 1;
    if (diagonal.bounded_high) {
      const int64_t seen = last_row + diagonal.high - block_key + 1;
      keys.end = packed_below(info, keys.end, seen);
      partial |= packed_below(info, keys.end, tile.row + diagonal.high - block_key + 1) < keys.end;
    }
    if (diagonal.bounded_low) {
      const int64_t seen = packed_below(info, keys.end, tile.row + diagonal.low - block_key);
      if (seen > begin) begin = seen;
      partial |= packed_below(info, keys.end, last_row + diagonal.low - block_key) > begin;
    }
    if (begin >= keys.end) return;
    keys.begin = begin / V::kTileRows * V::kTileRows;
    partial |= keys.begin != begin;
    TileMaskResult mask;
    if (partial) {
      mask =
          build_mask_tile<V, NR>(params, geometry, segment, diagonal, head_q, tile.row, tile.rows,
                                 block_key, info, first_key, keys.begin, keys.end, terms);
      if (mask.kind == TileMask::all_hidden) return;
    }
    // Keys after the last one share its step along the product.
    const bool shared_step = keys.end < info.count && keys.end % (P::kGroup * P::kDepth) != 0;
    TileAttention<P, NR>::block(params, geometry, tile, keys,
                                mask.kind == TileMask::terms ? terms : nullptr,
                                (mask.hides || shared_step) && info.v_nonfinite != 0, scores);
  }

  // How many of the first `count` packed keys lie before key `limit` of the block.
  static int64_t packed_below(const BlockInfo& info, int64_t count, int64_t limit) {
    if (limit <= 0) return 0;
    if (!info.compacted) return limit < count ? limit : count;
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (info.index[middle] < limit) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  void visit_tile(Tile& tile, int64_t block, int64_t first_key, int64_t last_key, bool full) {
    switch (tile.vectors) {
      case 1:
        tile_block<1>(tile, block, first_key, last_key, full);
        break;
      case 2:
        tile_block<2>(tile, block, first_key, last_key, full);
        break;
      default:
        tile_block<V::kTileVectors>(tile, block, first_key, last_key, full);
        break;
    }
  }

  void visit_block(int64_t block, int64_t first_key, int64_t last_key, bool full = false) {
    if (packed.info[block].count == 0) return;
    for (int t = 0; t < num_tiles; ++t) visit_tile(tiles[t], block, first_key, last_key, full);
  }

  // Divides rows into tiles: full ones, and the rest in the narrowest that fit. The panels of
  // consecutive tiles are `tile_floats` apart, 0 where one tile is finished before the next begins.
  void make_tiles(int64_t row, int64_t rows, int64_t tile_floats, float* scratch) {
    constexpr int64_t kFull = V::kTileVectors * V::kLanes;
    while (rows > 0) {
      Tile& tile = tiles[num_tiles++];
      if (V::kTileVectors == 3 && rows > kFull && rows <= 4 * V::kLanes) {
        tile.vectors = 2;  // two of two vectors cost less than three and one
      } else {
        tile.vectors =
            static_cast<int>(rows >= kFull ? V::kTileVectors : (rows + V::kLanes - 1) / V::kLanes);
      }
      const int64_t lanes = tile.vectors * V::kLanes;
      tile.row = row;
      tile.rows = rows < lanes ? rows : lanes;
      tile.max = scratch;
      tile.sum = scratch + lanes;
      tile.q = scratch + 2 * lanes;
      tile.o = tile.q + packed_words<P>(params.head_dim) * lanes;
      scratch += tile_floats;
      row += tile.rows;
      rows -= tile.rows;
    }
  }

  void begin_tile(const Tile& tile) {
    const int64_t lanes = tile.vectors * V::kLanes;
    if constexpr (P::kGroup == 2) {
      pack_queries<P, LoadBf16Pairs>(params, segment, head_q, tile.row, tile.rows, lanes, tile.q);
      const int64_t words = (params.head_dim + P::kGroup - 1) / P::kGroup;
      float* const end = tile.q + packed_words<P>(params.head_dim) * lanes;
      for (float* x = tile.q + words * lanes; x < end; ++x) *x = 0.f;
    } else {
      switch (params.dtype) {
        case FloatType::f32:
          pack_queries<P, LoadF32>(params, segment, head_q, tile.row, tile.rows, lanes, tile.q);
          break;
        case FloatType::bf16:
          pack_queries<P, LoadBf16>(params, segment, head_q, tile.row, tile.rows, lanes, tile.q);
          break;
        case FloatType::f16:
          pack_queries<P, LoadF16<V>>(params, segment, head_q, tile.row, tile.rows, lanes, tile.q);
          break;
      }
    }
    for (int64_t i = 0; i < lanes; ++i) {
      tile.max[i] = -kInfinity;
      tile.sum[i] = 0.f;
    }
  }

  // The output of a tile that saw no key.
  void clear_unstarted(const Tile& tile) {
    if (tile.started) return;
    const int64_t columns = (params.dim_v + V::kTileRows - 1) / V::kTileRows * V::kTileRows;
    for (int64_t i = 0; i < columns * tile.vectors * V::kLanes; ++i) tile.o[i] = 0.f;
  }

  void finish_tile(const Tile& tile) {
    const int64_t lanes = tile.vectors * V::kLanes;
    clear_unstarted(tile);
    const int64_t heads_offset =
        (segment.batch * params.heads_q + head_q) * params.lse_rows + segment.q_begin;
    alignas(64) float inverse[64];
    for (int64_t i = 0; i < lanes; ++i) {
      const bool empty = tile.sum[i] == 0.f;
      inverse[i] = empty ? 0.f : 1.f / tile.sum[i];
      if (params.lse == nullptr || i >= tile.rows) continue;
      float lse = -kInfinity;
      if (!empty) {
        lse = static_cast<float>(0.69314718055994531 * static_cast<double>(tile.max[i]) +
                                 __builtin_log(static_cast<double>(tile.sum[i])));
        // Terms that were clamped to stay finite stand for the most negative float.
        if (tile.max[i] == -FLT_MAX) lse = -FLT_MAX;
      }
      params.lse[heads_offset + tile.row + i] = lse;
    }
    switch (params.out_dtype) {
      case FloatType::f32:
        store_rows<V, StoreF32>(params, segment, head_q, tile.row, tile.rows, lanes, tile.o,
                                inverse);
        break;
      case FloatType::bf16:
        store_rows<V, StoreBf16>(params, segment, head_q, tile.row, tile.rows, lanes, tile.o,
                                 inverse);
        break;
      case FloatType::f16:
        store_rows<V, StoreF16<V>>(params, segment, head_q, tile.row, tile.rows, lanes, tile.o,
                                   inverse);
        break;
    }
  }

  int64_t num_blocks() const {
    return (segment.kv_length + geometry.block_keys - 1) / geometry.block_keys;
  }

  // With a single block of keys a tile does little between reading its queries and writing its
  // outputs: one tile after the other in the same panels, and memory fetched ahead.
  void run_single_block() {
    for (int t = 0; t < num_tiles; ++t) {
      Tile& tile = tiles[t];
      begin_tile(tile);
      fetch_ahead(tile, tile.row + tile.rows);
      if (num_blocks() == 1 && packed.info[0].count > 0) {
        visit_tile(tile, 0, 0, geometry.block_keys, false);
      }
      finish_tile(tile);
    }
  }

  // Spreads the queries from row `next` on and the outputs of the tile over the strips of the
  // block that follows.
  void fetch_ahead(Tile& tile, int64_t next) {
    const int64_t q_bytes = params.dtype == FloatType::f32 ? 4 : 2;
    const int64_t out_bytes = params.out_dtype == FloatType::f32 ? 4 : 2;
    const int64_t left = segment.q_length - next;
    tile.next_q = {static_cast<const char*>(params.q.data) +
                       (segment.batch * params.q.batch + head_q * params.q.head +
                        (segment.q_begin + next) * params.q.seq) *
                           q_bytes,
                   params.q.seq * q_bytes, params.head_dim * q_bytes,
                   left < 0           ? 0
                   : left < tile.rows ? left
                                      : tile.rows};
    tile.out = {static_cast<const char*>(params.out) +
                    (segment.batch * params.out_batch + head_q * params.out_head +
                     (segment.q_begin + tile.row) * params.out_seq) *
                        out_bytes,
                params.out_seq * out_bytes, params.dim_v * out_bytes, tile.rows};
    const int64_t strips = 1 + (geometry.block_keys + params.dim_v) / V::kTileRows;
    tile.fetch_q = (tile.next_q.lines() + strips - 1) / strips;
    tile.fetch_out = (tile.out.lines() + strips - 1) / strips;
  }

  // Blocks begin..end-1.
  void run_dense(int64_t row, int64_t rows, int64_t begin, int64_t end) {
    int64_t first = begin, last = end - 1;
    if (diagonal.bounded_low) {
      const int64_t key = row + diagonal.low;
      if (key / geometry.block_keys > first) first = key / geometry.block_keys;
    }
    if (diagonal.bounded_high) {
      const int64_t key = row + rows - 1 + diagonal.high;
      if (key < 0) return;
      if (key / geometry.block_keys < last) last = key / geometry.block_keys;
    }
    for (int64_t block = first; block <= last; ++block) {
      if (block == last) {
        for (int t = 0; t < num_tiles; ++t) fetch_ahead(tiles[t], tiles[t].row + rows);
      }
      visit_block(block, 0, geometry.block_keys);
    }
  }

  // Neighbours on the list that lie in one packed block are visited together, so that a list of all
  // blocks does what run_dense does.
  void run_listed(int64_t row) {
    const BlockList& list = params.blocks;
    const int64_t at =
        segment.batch * list.batch + head_q * list.head + row / static_cast<int64_t>(list.block_q);
    const int32_t* indices = list.indices + at * list.max_count;
    const uint8_t* partial = list.partial == nullptr ? nullptr : list.partial + at * list.max_count;
    const int32_t count = list.counts[at];
    for (int32_t i = 0; i < count;) {
      const int64_t first_key = int64_t{indices[i]} * list.block_kv;
      if (first_key >= segment.kv_length) return;
      const int64_t block = first_key / geometry.block_keys;
      const int64_t block_end = (block + 1) * geometry.block_keys;
      int64_t last_key = first_key + list.block_kv;
      const bool full = partial != nullptr && partial[i] == 0;
      while (++i < count && last_key < block_end &&
             int64_t{indices[i]} * list.block_kv == last_key &&
             (partial == nullptr || (partial[i] == 0) == full)) {
        last_key += list.block_kv;
      }
      if (last_key > block_end) last_key = block_end;
      visit_block(block, first_key - block * geometry.block_keys,
                  last_key - block * geometry.block_keys, full);
    }
  }
};

template <class P>
FOVEA_INLINE Superblock<P> make_superblock(const Params& params, const Geometry& geometry,
                                           const Segment& segment, int64_t head_q,
                                           const PackedBlocks& packed, float* scratch) {
  Superblock<P> block{
      params, geometry, segment, head_q, packed, scratch, scratch + geometry.score_floats,
      {},     false,    {},      0};
  const int64_t shift = segment.kv_length - segment.q_length;
  block.diagonal.bounded_low = params.left >= 0;
  block.diagonal.bounded_high = params.right >= 0;
  // A bound beyond every key is no bound; this also keeps the sums below inside int64.
  const int64_t reach = segment.kv_length + segment.q_length;
  if (params.left > reach) block.diagonal.bounded_low = false;
  if (params.right > reach) block.diagonal.bounded_high = false;
  if (block.diagonal.bounded_low) block.diagonal.low = shift - params.left;
  if (block.diagonal.bounded_high) block.diagonal.high = shift + params.right;
  block.row_masks = params.num_masks > __builtin_popcount(geometry.key_masks);
  return block;
}

template <class P>
void attend(const Params& params, const Geometry& geometry, const Segment& segment, int64_t head_q,
            int64_t row, int64_t rows, const PackedBlocks& packed, float* scratch) {
  Superblock<P> block = make_superblock<P>(params, geometry, segment, head_q, packed, scratch);
  const bool single_block = params.blocks.counts == nullptr && block.num_blocks() <= 1;
  block.make_tiles(row, rows, single_block ? 0 : geometry.tile_floats,
                   scratch + 2 * geometry.score_floats);
  if (single_block) return block.run_single_block();
  for (int t = 0; t < block.num_tiles; ++t) block.begin_tile(block.tiles[t]);
  if (params.blocks.counts != nullptr) {
    block.run_listed(row);
  } else {
    block.run_dense(row, rows, 0, block.num_blocks());
  }
  for (int t = 0; t < block.num_tiles; ++t) block.finish_tile(block.tiles[t]);
}

template <class P>
void attend_part(const Params& params, const Geometry& geometry, const Segment& segment,
                 int64_t head_q, int64_t row, int64_t rows, const PackedBlocks& packed,
                 int64_t first, int64_t end, float* scratch, float* part) {
  Superblock<P> block = make_superblock<P>(params, geometry, segment, head_q, packed, scratch);
  block.make_tiles(row, rows, 0, part);
  Tile& tile = block.tiles[0];
  block.begin_tile(tile);
  const int64_t blocks = block.num_blocks();
  block.run_dense(row, rows, first, end < blocks ? end : blocks);
  block.clear_unstarted(tile);
}

template <class P>
void merge(const Params& params, const Geometry& geometry, const Segment& segment, int64_t head_q,
           int64_t row, int64_t rows, float* parts, int64_t count) {
  using V = typename P::Vec;
  using Float = typename V::Float;
  Superblock<P> block = make_superblock<P>(params, geometry, segment, head_q, {}, parts);
  block.make_tiles(row, rows, 0, parts);
  Tile& tile = block.tiles[0];
  tile.started = true;
  const int64_t lanes = tile.vectors * V::kLanes;
  const int64_t columns = (params.dim_v + V::kTileRows - 1) / V::kTileRows * V::kTileRows;
  const Float minus_infinity = V::set(-kInfinity);
  for (int64_t p = 1; p < count; ++p) {
    const float* const part = parts + p * geometry.tile_floats;
    const float* const part_o = part + (tile.o - tile.max);
    for (int64_t lane = 0; lane < lanes; lane += V::kLanes) {
      const Float max_a = V::load(tile.max + lane), max_b = V::load(part + lane);
      const Float max = V::max(max_a, max_b);
      const Float base = V::select(V::equal(max, minus_infinity), V::set(0.f), max);
      const auto weight = [&](Float x) __attribute__((always_inline)) {
        return V::select(V::equal(x, max), V::set(1.f), simd::exp2_nonpositive<V>(V::sub(x, base)));
      };
      const Float a = weight(max_a), b = weight(max_b);
      V::store(tile.max + lane, max);
      V::store(tile.sum + lane,
               V::fma(a, V::load(tile.sum + lane), V::mul(b, V::load(part + lanes + lane))));
      for (int64_t d = 0; d < columns; ++d) {
        float* const o = tile.o + d * lanes + lane;
        V::store(o, V::fma(a, V::load(o), V::mul(b, V::load(part_o + d * lanes + lane))));
      }
    }
  }
  block.finish_tile(tile);
}

template <class P>
constexpr KernelTable make_kernels(const char* name) {
  using V = typename P::Vec;
  KernelTable table;
  table.name = name;
  table.lanes = V::kLanes;
  table.tile_vectors = V::kTileVectors;
  table.tile_rows = V::kTileRows;
  table.group = P::kGroup;
  table.depth = P::kDepth;
  table.dot_dtype = P::kProducts;
  table.pack = pack_block<P>;
  table.attend = attend<P>;
  table.attend_part = attend_part<P>;
  table.merge = merge<P>;
  return table;
}

}  // namespace fovea::cpu_flash
