// Two neighbouring rows of blocks of 64 queries, one for each consumer warpgroup. What both list is
// copied once and read by both: blocks of 64 keys for 64 queries alone would ask more of the L2
// cache than it can give.
//
// A row first visits its own blocks, which it alone lists, then the common ones, each kind from the
// end of the list. Tiles are two blocks of 64 keys, or the halves of a block of 128; where a row's
// own blocks are odd in number the first tile holds one of them twice, the second time hidden.
// Common tiles need no masking: a block that the end of the keys cuts off counts as own, and so do
// common ones that would leave half a tile, or one row without own tiles beside one with some.
//
// The warpgroups take turns at common tiles and at the first own ones, as many as the shorter row
// has; the longer row visits its other own tiles alone.
#pragma once

#include "src/backends/flash_sm90/work.cuh"

namespace fovea::flash_sm90 {

/// Where a tile of K or V lies. Each row has kStages buffers. Own tiles go through the buffers of
/// the row, common ones through those of both rows. A buffer has one "empty" barrier and two "full"
/// ones, for own and for common tiles, as a consumer cannot count what the other one alone waits
/// for.
struct RowSlot {
  uint32_t buffer, full, parity;  // full: number of the barrier
  /// Both consumers hand a common tile back; of another one the owner counts twice.
  uint32_t arrivals;
};
/// `tile`: of all own tiles of the row so far.
template <int kStages>
FOVEA_DEVICE RowSlot own_slot(uint32_t tile, int row) {
  const uint32_t buffer = row * kStages + tile % kStages;
  return {buffer, buffer, tile / kStages & 1, 2};
}
/// `tile`: of all common tiles so far.
template <int kStages>
FOVEA_DEVICE RowSlot common_slot(uint32_t tile) {
  const uint32_t buffer = tile % (2 * kStages);
  return {buffer, 2 * kStages + buffer, tile / (2 * kStages) & 1, 1};
}

/// The entries of a list that are common, or those that are not, from its end.
template <Key kKey>
struct Entries {
  const int* list;
  const uint32_t* bits;  // of common entries
  int count, word;
  uint32_t flip, found = 0;

  FOVEA_DEVICE Entries(const Params& p, const Task& t, bool common)
      : list(list_of(p, t)),
        bits(t.common_bits),
        count(t.entries),
        word((t.entries + 31) / 32),
        flip(common ? 0 : ~0u) {}
  /// Number of the next one's block. Some must be left.
  FOVEA_DEVICE int next() {
    while (found == 0) {
      word--;
      found = (word < kCommonWords ? bits[word] : 0) ^ flip;
      if (count - 32 * word < 32) found &= (1u << (count - 32 * word)) - 1;
    }
    const int bit = 31 - __clz(found);
    found ^= 1u << bit;
    return __ldg(list + 32 * word + bit);
  }
};

/// Blocks of the visited tiles of a row, in order.
template <Key kKey>
struct RowTiles {
  Entries<kKey> entries;
  const bool halves, empty;
  bool single;  // the next tile is one block twice
  int number[2] = {};

  FOVEA_DEVICE RowTiles(const Params& p, const Task& t, bool common)
      : entries(p, t, common),
        halves(p.list_halves != 0),
        empty(t.entries == 0),
        single(!common && t.first_block % 2 != 0) {}
  FOVEA_DEVICE void read() {
    if (empty) return;
    number[1] = entries.next();
    if (halves) {
      number[0] = 2 * number[1];
      number[1] = number[0] + (single ? 0 : 1);
    } else {
      number[0] = single ? number[1] : entries.next();
    }
    single = false;
  }
};

/// Blocks of visited tile i of a row.
template <Key kKey>
FOVEA_DEVICE void row_tile(const Params& p, const Task& t, int i, int (&number)[2]) {
  RowTiles<kKey> tiles(p, t, i >= t.own);
#pragma unroll 1
  for (int n = i >= t.own ? t.own : 0; n <= i; n++) tiles.read();
  number[0] = tiles.number[0];
  number[1] = tiles.number[1];
}

/// Position of a block in an ascending list; -1 where it is not there.
FOVEA_DEVICE int find(const int* list, int count, int block) {
  int low = 0;
#pragma unroll 1
  for (int left = count; left > 1;) {
    const int half = left / 2;
    if (__ldg(list + low + half) <= block) low += half;
    left -= half;
  }
  return low < count && __ldg(list + low) == block ? low : -1;
}

/// Clears the highest bit that is set; some must be.
FOVEA_DEVICE void clear_highest(uint32_t* bits) {
  int word = kCommonWords - 1;
#pragma unroll 1
  while (bits[word] == 0) word--;
  bits[word] ^= 1u << (31 - __clz(bits[word]));
}

/// Finds what the two rows have in common and completes their tasks. A whole warp. Lists that do
/// not ascend have nothing in common.
template <Key kKey>
FOVEA_DEVICE void pair_rows(const Params& p, Task* pair) {
  constexpr int kLanes = 32, kBlock = Traits<kKey>::kBlockKv / 2, kMost = 32 * kCommonWords;
  const int lane = threadIdx.x % kLanes;
  uint32_t *upper = pair[0].common_bits, *lower = pair[1].common_bits;
  for (int n = lane; n < kCommonWords; n += kLanes) upper[n] = lower[n] = 0;
  __syncwarp();
  bool ascends = true;
#pragma unroll 1
  for (int row = 0; row < 2; row++) {
    const int* list = list_of(p, pair[row]);
#pragma unroll 1
    for (int n = lane + 1; n < min(pair[row].entries, kMost); n += kLanes)
      ascends &= __ldg(list + n - 1) < __ldg(list + n);
  }
  const int other = __all_sync(~0u, ascends) ? min(pair[1].entries, kMost) : 0;
  const int count = other > 0 ? min(pair[0].entries, kMost) : 0;
  const int *list = list_of(p, pair[0]), *other_list = list_of(p, pair[1]);
  int common = 0;
#pragma unroll 1
  for (int from = 0; from < count; from += kLanes) {
    const int at = from + lane < count ? find(other_list, other, __ldg(list + from + lane)) : -1;
    if (at >= 0) atomicOr(lower + at / 32, 1u << at % 32);
    const uint32_t found = __ballot_sync(~0u, at >= 0);
    if (lane == 0) upper[from / 32] = found;
    common += __popc(found);
  }
  __syncwarp();
  const int per_tile = p.list_halves ? 1 : 2;  // entries
  // Own after all: the last entry, where it ends with the keys, and one more where tiles need two.
  const int last = pair[0].entries - 1;
  int removed =
      common > 0 && pair[0].partials && last < kMost && (upper[last / 32] >> last % 32 & 1) != 0
          ? 1
          : 0;
  removed += (common - removed) % per_tile;
  // Both rows have own tiles or neither: one that began with a common tile would wait for the
  // other, whose own tiles may need a buffer of V that the first one keeps until it begins. Turns
  // need it too: the first tile of a task always takes one, that of the thread block never.
  const bool upper_alone = pair[0].entries > common - removed,
             lower_alone = pair[1].entries > common - removed;
  if (common > removed && upper_alone != lower_alone) removed += per_tile;
  common -= removed;
  __syncwarp();
  if (lane < 2) {
    Task& t = pair[lane];
#pragma unroll 1
    for (int n = 0; n < removed; n++) clear_highest(t.common_bits);
    const int visible = t.low_block;  // keys of the last block
    t.first_block = max(t.first_block - common * 2 / per_tile, 0);
    t.own = (t.first_block + 1) / 2;
    t.count = t.end = t.own + common / per_tile;
    t.low_block = (t.first_block % 2 == 0 ? kBlock : 0) + visible;
    t.partials = t.own > 0 && t.low_block < 2 * kBlock ? 1 : 0;
  }
  __syncwarp();
  if (lane < 2) pair[lane].other_own = pair[1 - lane].own;
  __syncwarp();
}

}  // namespace fovea::flash_sm90
