// The attention loop of one superblock of queries: "lanes are queries".
//
// Its tiles (tile_attention.hpp) visit one block of keys after the other. The order of keys depends
// on the problem only, and every lane is independent of the others, so results do not depend on how
// rows are split over workers.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/mask_tile.hpp"
#include "src/backends/cpu_flash/pack.hpp"
#include "src/backends/cpu_flash/store_rows.hpp"
#include "src/backends/cpu_flash/tile_attention.hpp"
#include "src/simd/exp2.hpp"
#include "src/simd/log.hpp"

namespace fovea::cpu_flash {

// The shared state of one superblock.
template <class P>
struct Superblock {
  using V = typename P::Vec;
  using Float = typename V::Float;
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
  FetchQueue fetch;

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
    TileAttention<P, NR>::block(
        params, geometry, tile, keys, mask.kind == TileMask::terms ? terms : nullptr,
        (mask.hides || shared_step) && info.v_nonfinite != 0, fetch, scores);
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
    alignas(64) float inverse[64], log_sum[64];
    for (int64_t lane = 0; lane < lanes; lane += V::kLanes) {
      const Float sum = V::load(tile.sum + lane);
      const auto empty = V::equal(sum, V::set(0.f));
      V::store(inverse + lane, V::select(empty, V::set(0.f), V::set(1.f) / sum));
      V::store(log_sum + lane, simd::log_positive<V>(sum));
    }
    if (params.lse != nullptr) {
      float* const lse = params.lse + heads_offset + tile.row;
      for (int64_t i = 0; i < tile.rows; ++i) {
        const float max = tile.max[i];
        const float x = static_cast<float>(0.69314718055994531 * static_cast<double>(max) +
                                           static_cast<double>(log_sum[i]));
        // Terms that were clamped to stay finite stand for the most negative float.
        lse[i] = tile.sum[i] == 0.f ? -kInfinity : max == -FLT_MAX ? -FLT_MAX : x;
      }
    }
    switch (params.out_dtype) {
      case FloatType::f32:
        store_rows<V, StoreF32<V>>(params, segment, head_q, tile.row, tile.rows, lanes, tile.o,
                                   inverse);
        break;
      case FloatType::bf16:
        store_rows<V, StoreBf16<V>>(params, segment, head_q, tile.row, tile.rows, lanes, tile.o,
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
      fetch.clear();
      fetch.add_columns(output_rows(tile.row, tile.rows));
      fetch.add_columns(query_rows(tile.row + tile.rows, tile.rows));
      spread_fetch(geometry.block_keys, 1);
      if (num_blocks() == 1 && packed.info[0].count > 0) {
        visit_tile(tile, 0, 0, geometry.block_keys, false);
      }
      finish_tile(tile);
    }
  }

  RowCursor output_rows(int64_t row, int64_t rows) const {
    const int64_t bytes = params.out_dtype == FloatType::f32 ? 4 : 2;
    return {static_cast<const char*>(params.out) +
                (segment.batch * params.out_batch + head_q * params.out_head +
                 (segment.q_begin + row) * params.out_seq) *
                    bytes,
            params.out_seq * bytes, params.dim_v * bytes, rows};
  }

  // At most `rows` rows; none past the last.
  RowCursor query_rows(int64_t row, int64_t rows) const {
    const int64_t bytes = params.dtype == FloatType::f32 ? 4 : 2;
    const int64_t left = segment.q_length - row;
    return {static_cast<const char*>(params.q.data) +
                (segment.batch * params.q.batch + head_q * params.q.head +
                 (segment.q_begin + row) * params.q.seq) *
                    bytes,
            params.q.seq * bytes, params.head_dim * bytes, rows < left ? rows : left};
  }

  // The outputs of `rows` rows, and the queries of as many rows after them.
  void fetch_rows(int64_t row, int64_t rows) {
    fetch.clear();
    fetch.rows[0] = output_rows(row, rows);
    fetch.rows[1] = query_rows(row + rows, rows);
  }

  // Spreads what is to be fetched over the visit of `keys` keys by `visitors` tiles.
  void spread_fetch(int64_t keys, int64_t visitors) {
    const int64_t words = packed_words<P>(params.head_dim);
    const int64_t steps = (keys * words + params.dim_v * (keys / P::kGroup)) / V::kTileRows;
    fetch.spread(visitors * (1 + (keys + params.dim_v) / V::kTileRows),
                 visitors * steps / kTileSteps);
  }

  // Keys first_key..last_key - 1 of one packed block.
  void fetch_keys(int64_t block, int64_t first_key, int64_t last_key) {
    const BlockInfo& info = packed.info[block];
    const int64_t end = packed_below(info, info.count, last_key);
    const int64_t begin = packed_below(info, end, first_key) / V::kTileRows * V::kTileRows;
    const int64_t words = packed_words<P>(params.head_dim);
    fetch.clear();
    fetch.add(packed.k + block * geometry.k_block_floats + begin * words,
              ((end - begin) * words + 15) / 16, 64, 1, 0);
    fetch.add(packed.v + block * geometry.v_block_floats + begin / P::kGroup * V::kTileRows,
              ((end - begin) / P::kGroup * V::kTileRows + 15) / 16, 64,
              (params.dim_v + V::kTileRows - 1) / V::kTileRows, geometry.v_strip_floats * 4);
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
        fetch_rows(row, rows);
      } else {
        fetch_keys(block + 1, 0, geometry.block_keys);
      }
      spread_fetch(geometry.block_keys, num_tiles);
      visit_block(block, 0, geometry.block_keys);
    }
  }

  // Keys of one packed block, as a list asks for them.
  struct Listed {
    int64_t block = 0;
    int64_t first_key = 0;
    int64_t last_key = 0;
    bool full = false;
  };

  // The keys from entry i of the list on, and steps over their entries. Neighbours on the list that
  // lie in one packed block are taken together, so that a list of all blocks does what run_dense
  // does. False at the end.
  bool next_listed(const int32_t* indices, const uint8_t* partial, int32_t count, int32_t& i,
                   Listed& keys) const {
    const int64_t block_kv = params.blocks.block_kv;
    if (i >= count) return false;
    int64_t first_key = indices[i] * block_kv;
    if (first_key >= segment.kv_length) return false;
    keys.block = first_key / geometry.block_keys;
    const int64_t block_end = (keys.block + 1) * geometry.block_keys;
    int64_t last_key = first_key + block_kv;
    keys.full = partial != nullptr && partial[i] == 0;
    while (++i < count && last_key < block_end && indices[i] * block_kv == last_key &&
           (partial == nullptr || (partial[i] == 0) == keys.full)) {
      last_key += block_kv;
    }
    if (last_key > block_end) last_key = block_end;
    keys.first_key = first_key - keys.block * geometry.block_keys;
    keys.last_key = last_key - keys.block * geometry.block_keys;
    return true;
  }

  void run_listed(int64_t row, int64_t rows) {
    const BlockList& list = params.blocks;
    const int64_t at =
        segment.batch * list.batch + head_q * list.head + row / static_cast<int64_t>(list.block_q);
    const int32_t* indices = list.indices + at * list.max_count;
    const uint8_t* partial = list.partial == nullptr ? nullptr : list.partial + at * list.max_count;
    const int32_t count = list.counts[at];
    int32_t i = 0;
    Listed keys;
    bool some = next_listed(indices, partial, count, i, keys);
    while (some) {
      const Listed now = keys;
      some = next_listed(indices, partial, count, i, keys);
      if (some) {
        fetch_keys(keys.block, keys.first_key, keys.last_key);
      } else {
        fetch_rows(row, rows);
      }
      spread_fetch(now.last_key - now.first_key, num_tiles);
      visit_block(now.block, now.first_key, now.last_key, now.full);
    }
  }
};

template <class P>
FOVEA_INLINE Superblock<P> make_superblock(const Params& params, const Geometry& geometry,
                                           const Segment& segment, int64_t head_q,
                                           const PackedBlocks& packed, float* scratch) {
  Superblock<P> block{
      params, geometry, segment, head_q, packed, scratch, scratch + geometry.score_floats,
      {},     false,    {},      0,      {}};
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
    block.run_listed(row, rows);
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
