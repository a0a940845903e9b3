// Which query tile and which of its key blocks a thread block works on: found by the thread that
// hands out tasks.
//
// A work item is one query tile, the two neighbouring ones of a cluster, or two neighbouring rows
// of blocks of 64 queries (row_pair.cuh, where a whole warp hands out). Items are dealt round-robin
// to the team (blocks or clusters) in whole waves. The items left over would leave most of the team
// idle, so their key blocks form a pool of units that is cut into equal pieces, one per member;
// pieces of one item are merged through the workspace. A segment is a range of an item's key
// blocks, counted in visiting order: the blocks that need masking come first.
//
// Items of block lists differ in length in no order, so after its first one every member draws the
// next item from a counter.
#pragma once

#include "src/backends/flash_sm90/traits.cuh"

namespace fovea::flash_sm90 {

FOVEA_DEVICE int divide(int n, Divisor d) {
  return d.value == 1 ? n : static_cast<int>(__umulhi(n, d.magic));
}

struct Segment {
  int item;        // Mask::none: of all items; else within the group
  int group;       // batch item, document, or (batch item, head)
  int begin, end;  // key blocks in visiting order
  int unit;        // pool unit of the item's block 0
};

// Lengths of a group. Device values are clamped to the tensors.
struct Span {
  int start, length;
};
FOVEA_DEVICE Span document(const int* cu_seqlens, int index, int total) {
  const int start = min(max(__ldg(cu_seqlens + index), 0), total);
  return {start, min(max(__ldg(cu_seqlens + index + 1), start), total) - start};
}
FOVEA_DEVICE Span kv_span(const Params& p, int batch) {
  if (p.cu_seqlens_kv) return document(p.cu_seqlens_kv, batch, p.seq_kv);
  if (!p.kv_lengths) return {0, p.seq_kv};
  const long long n = p.kv_lengths_wide ? __ldg(static_cast<const long long*>(p.kv_lengths) + batch)
                                        : __ldg(static_cast<const int*>(p.kv_lengths) + batch);
  return {0, static_cast<int>(min(max(n, 0LL), static_cast<long long>(p.seq_kv)))};
}
FOVEA_DEVICE Span q_span(const Params& p, int batch) {
  return p.cu_seqlens_q ? document(p.cu_seqlens_q, batch, p.seq_q) : Span{0, p.seq_q};
}

/// Where the list of a query tile begins.
FOVEA_DEVICE const int* list_of(const Params& p, const Task& t) {
  return p.list_indices + t.batch * p.list_index_batch + t.head * p.list_index_head +
         t.m * p.list_index_tile;
}

/// Number n of its blocks, in list order.
template <Key kKey>
FOVEA_DEVICE int listed_block(const Params& p, const Task& t, int n) {
  if constexpr (!Traits<kKey>::kHalved) return __ldg(list_of(p, t) + n);
  return __ldg(list_of(p, t) + (n >> p.list_halves)) << p.list_halves | (n & p.list_halves);
}

/// Source::pairs: block `half` of the pair at visited position i. The first pair visited ends with
/// the last block of the list; where the list is odd it holds that block twice, the second time
/// hidden.
template <Key kKey>
FOVEA_DEVICE int pair_block(const Params& p, const Task& t, int i, int half) {
  if (t.kv_length == 0) return 0;
  return listed_block<kKey>(p, t, min(2 * (t.count - 1 - i) + half, t.first_block - 1));
}

/// Number of visited block i. A range is visited from its end; a band first visits the partial
/// blocks at its upper and lower ends.
template <Key kKey>
FOVEA_DEVICE int block_of(const Params& p, const Task& t, int i) {
  using T = Traits<kKey>;
  if constexpr (T::kPairs) {
    return 0;  // a tile is not one block, see pair_block
  } else if constexpr (!T::kDense) {
    if (t.kv_length == 0) return 0;
    return listed_block<kKey>(p, t, t.count - 1 - i);
  } else if constexpr (T::kKeyBits) {
    return __ldg(p.key_entries + static_cast<long long>(t.key_row) * p.key_blocks + i);
  } else if constexpr (T::kBand) {
    if (i < t.high_partials) return t.first_block - i;
    if (i < t.partials) return t.low_block + t.partials - 1 - i;
    return t.first_block - i + (t.partials - t.high_partials);
  } else {
    return t.first_block - i;
  }
}

/// Blocks on the list of a query tile. The caller's count may not lead beyond the row's indices.
template <Key kKey>
FOVEA_DEVICE int list_count(const Params& p, const Task& t) {
  const int listed =
      min(__ldg(p.list_counts + t.batch * p.list_count_batch + t.head * p.list_count_head + t.m),
          static_cast<int>(p.list_index_tile));
  return Traits<kKey>::kHalved ? listed << p.list_halves : listed;
}

/// The task of a segment (without a split, the segment's end is found here).
template <Key kKey>
FOVEA_DEVICE void locate(const Params& p, const Segment& s, uint32_t rank, Task& t) {
  using T = Traits<kKey>;
  t.begin = s.begin;
  t.end = s.end;
  t.unit = s.unit;
  t.q_start = t.kv_start = 0;
  const int heads = static_cast<int>(p.heads.value);
  if constexpr (!T::kGrouped) {
    const int head_index = divide(s.item, p.q_items);
    t.batch = divide(head_index, p.heads);
    t.head = head_index - t.batch * heads;
    t.m = s.item - head_index * static_cast<int>(p.q_items.value);
    t.q_length = p.seq_q;
    t.kv_length = p.seq_kv;
  } else {
    const bool whole = p.group_heads == heads;
    const int batch = whole ? s.group : divide(s.group, p.heads);
    const Span q = q_span(p, batch), kv = kv_span(p, batch);
    if constexpr (!T::kBand) {
      const int tiles = (q.length + T::kBlockQ * T::kCluster - 1) / (T::kBlockQ * T::kCluster);
      t.head = s.item / tiles;
      t.m = s.item - t.head * tiles;
      if (!whole) t.head = s.group - batch * heads;
    } else {  // tiles with the most work first
      const int row = s.item / heads;
      t.head = s.item - row * heads;
      t.m = (q.length - 1) / T::kBlockQ - row;
    }
    t.batch = p.cu_seqlens_q ? 0 : batch;
    t.q_start = q.start;
    t.q_length = q.length;
    t.kv_start = kv.start;
    t.kv_length = kv.length;
    t.key_row = batch * p.key_batch + t.head * p.key_head;
  }
  t.m = t.m * T::kItemTiles + static_cast<int>(rank);

  // Its key blocks, those that need masking first.
  const int tail = t.kv_length % T::kBlockKv != 0 || t.kv_length == 0 ? 1 : 0;
  if constexpr (T::kPairs) {
    constexpr int kBlock = T::kBlockKv / 2;
    const bool exists = !T::kRowPair || t.m * T::kTaskRows < t.q_length;
    int blocks = exists ? list_count<kKey>(p, t) : 0;
    while (blocks > 0 && listed_block<kKey>(p, t, blocks - 1) * kBlock >= t.kv_length) blocks--;
    int visible = 0;    // keys of the last one
    if (blocks <= 0) {  // one pair with every key hidden
      blocks = 1;
      t.kv_length = 0;
    } else {
      visible = min(kBlock, t.kv_length - listed_block<kKey>(p, t, blocks - 1) * kBlock);
    }
    t.first_block = blocks;
    t.count = (blocks + 1) / 2;
    if constexpr (T::kRowPair) {  // pair_rows completes it
      t.entries = t.kv_length == 0 ? 0 : p.list_halves ? t.count : blocks;
      t.low_block = visible;
      t.partials = visible < kBlock || (p.list_halves && blocks % 2 != 0) ? 1 : 0;
    } else {
      t.low_block = (blocks % 2 == 0 ? kBlock : 0) + visible;
      t.partials = t.low_block < T::kBlockKv ? 1 : 0;
    }
  } else if constexpr (!T::kDense) {
    t.count = list_count<kKey>(p, t);
    while (t.count > 0 && block_of<kKey>(p, t, 0) * T::kBlockKv >= t.kv_length) t.count--;
    if (t.count <= 0) {  // one block with every key hidden
      t.count = 1;
      t.kv_length = 0;
    }
    t.partials = (block_of<kKey>(p, t, 0) + 1) * T::kBlockKv > t.kv_length ? 1 : 0;
  } else if constexpr (T::kKeyBits) {
    t.count = __ldg(p.key_counts + 2 * t.key_row);
    t.partials = __ldg(p.key_counts + 2 * t.key_row + 1);
  } else if constexpr (T::kBand) {
    const int first_row = t.m * T::kBlockQ;
    const int last_row = min(first_row + T::kBlockQ, t.q_length) - 1;
    const int diagonal = t.kv_length - t.q_length;
    // Keys [low, high) are visible to some row, [all_low, all_high) to every row.
    const int high = min(t.kv_length, last_row + diagonal + p.window_right + 1);
    const int low = max(0, first_row + diagonal - p.window_left);
    const int all_high = min(t.kv_length, first_row + diagonal + p.window_right + 1);
    const int all_low = max(0, last_row + diagonal - p.window_left);
    t.first_block = low < high ? (high - 1) / T::kBlockKv : 0;
    t.low_block = low < high ? low / T::kBlockKv : 0;
    t.count = t.first_block - t.low_block + 1;
    const int full_begin = (all_low + T::kBlockKv - 1) / T::kBlockKv;
    const int full_end = all_high / T::kBlockKv;
    if (low >= high || full_begin >= full_end || p.key_bits) {
      t.high_partials = t.partials = t.count;
    } else {
      t.high_partials = t.first_block + 1 - full_end;
      t.partials = t.high_partials + full_begin - t.low_block;
    }
  } else {
    t.count = T::kGrouped ? max(1, (t.kv_length + T::kBlockKv - 1) / T::kBlockKv) : p.blocks;
    t.partials = tail;
    t.first_block = t.count - 1;
  }
  if constexpr (!T::kSplit) t.end = t.count;
}

/// Bit words of a block.
FOVEA_DEVICE const uint32_t* key_words(const Params& p, const Task& t, int block) {
  return p.key_bits + (static_cast<long long>(t.key_row) * p.key_blocks + block) * kKeyWords;
}

/// First pool unit of a piece.
FOVEA_DEVICE int piece_begin(int piece, int units, int pieces) { return piece * units / pieces; }

/// Hands out this team member's segments in order.
template <Key kKey>
struct Walk {
  using T = Traits<kKey>;
  static constexpr int kItemRows = T::kBlockQ * T::kCluster;
  const Params& p;
  const int who, team;
  int index = 0;
  int waves, rest, pieces;
  // Grouped items only: the group that holds the current item and its first item; then the pool.
  int group = 0, base = 0;
  int units = 0, unit = 0, unit_end = 0, group_unit = 0;

  FOVEA_DEVICE Walk(const Params& params, int member, int members)
      : p(params),
        who(member),
        team(members),
        waves(params.waves),
        rest(params.rest),
        pieces(params.pieces) {
    if constexpr (T::kGrouped) {
      int items = p.items;
      if (p.cu_seqlens_q) {
        items = 0;
#pragma unroll 1
        for (int g = 0; g < groups(); g++) items += group_items(g);
      }
      waves = items / team;
      rest = items - waves * team;
      pieces = 0;
    } else {
      units = rest * p.blocks;
    }
  }
  FOVEA_DEVICE int groups() const {
    return p.group_heads == static_cast<int>(p.heads.value)
               ? p.batches
               : p.batches * static_cast<int>(p.heads.value);
  }
  FOVEA_DEVICE int group_items(int g) const {
    if (!p.cu_seqlens_q) return p.group_heads * static_cast<int>(p.q_items.value);
    return p.group_heads * ((q_span(p, g).length + kItemRows - 1) / kItemRows);
  }
  /// Key blocks of each item of a group (not for bands and lists, whose items differ).
  FOVEA_DEVICE int group_blocks(int g) const {
    const bool whole = p.group_heads == static_cast<int>(p.heads.value);
    const int batch = whole ? g : divide(g, p.heads);
    if constexpr (T::kKeyBits) {
      const int head = whole ? 0 : g - batch * static_cast<int>(p.heads.value);
      return __ldg(p.key_counts + 2 * (batch * p.key_batch + head * p.key_head));
    }
    return max(1, (kv_span(p, batch).length + T::kBlockKv - 1) / T::kBlockKv);
  }
  FOVEA_DEVICE bool whole_item(int item, Segment& s) {
    if constexpr (!T::kGrouped) {
      s = {item, 0, 0, p.blocks, 0};
    } else {
#pragma unroll 1
      while (item >= base + group_items(group)) base += group_items(group++);
      s = {item - base, group, 0, 0, 0};
      if constexpr (T::kSplit) s.end = group_blocks(group);
    }
    return true;
  }
  FOVEA_DEVICE bool next(Segment& s) {
    const int i = index++;
    if constexpr (!T::kDense) {
      const int item = i == 0 ? who : team + atomicAdd(p.next_item, 1);
      return item < p.items && whole_item(item, s);
    }
    if constexpr (!T::kSplit) {
      // Items get smaller as they go; alternating directions evens out the sums.
      const int item = i * team + ((i & 1) ? team - 1 - who : who);
      return item < waves * team + rest && whole_item(item, s);
    }
    if constexpr (!T::kGrouped) {
      // A piece covers the end of an item, then the beginning of one. What others wait for comes
      // first, what waits for others last, so that nobody does.
      const bool member = who < pieces;
      const int u0 = member ? piece_begin(who, units, pieces) : 0;
      const int u1 = member ? piece_begin(who + 1, units, pieces) : 0;
      const int end_item = u0 / p.blocks, begin = u0 - end_item * p.blocks;
      const int late = begin != 0 ? 1 : 0;
      const auto piece = [&](int item, int from) {
        s = {waves * team + item, 0, from, min(u1 - item * p.blocks, p.blocks), item * p.blocks};
        return s.begin < s.end;
      };
      if (i < late) return piece(end_item, begin);
      if (i < late + waves) return whole_item((i - late) * team + who, s);
      if (i > late + waves) return false;
      if (pieces == 0) return who < rest && whole_item(waves * team + who, s);
      return piece(end_item + late, 0);
    }
    if (i < waves) return whole_item(i * team + who, s);
    if constexpr (T::kGrouped && T::kSplit) {
      if (i == waves && rest) open_pool();
    }
    if (pieces == 0) return i == waves && who < rest && whole_item(waves * team + who, s);
    if constexpr (T::kGrouped) {
      if (unit >= unit_end) return false;
#pragma unroll 1
      for (;;) {  // `base` counts pool items here
        const int size = (group_items(group) - base) * group_blocks(group);
        if (unit < group_unit + size) break;
        group_unit += size;
        base = 0;
        group++;
      }
      const int blocks = group_blocks(group), at = unit - group_unit;
      const int item = at / blocks, begin = at - item * blocks;
      const int end = min(blocks, begin + unit_end - unit);
      s = {base + item, group, begin, end, unit - begin};
      unit += end - begin;
      return true;
    }
  }

 private:
  FOVEA_DEVICE void open_pool() {
    const int first = waves * team;
#pragma unroll 1
    while (first >= base + group_items(group)) base += group_items(group++);
    base = first - base;  // from here on: the group's first item that is in the pool
#pragma unroll 1
    for (int g = group, from = base; g < groups(); g++, from = 0)
      units += (group_items(g) - from) * group_blocks(g);
    // Pieces of at least four blocks, at most eight per item; none when that gains nothing, or
    // where piece_begin would need more than 31 bits.
    pieces = min(min(units / 4, rest * 8), team);
    if (pieces <= rest || rest * 20 > team * 19 || units > 0x7fffffff / team) {
      pieces = 0;
      base = first - base;
      return;
    }
    if (who >= pieces) return;
    unit = piece_begin(who, units, pieces);
    unit_end = piece_begin(who + 1, units, pieces);
  }
};

}  // namespace fovea::flash_sm90
