// Source::shared_list: two thread blocks of a cluster, each with its own row of query blocks, load
// once what both rows list.
//
// The host arranges the two lists (shared_lists.hpp). A tile begins with `coupled` steps, at least
// two, which the blocks take together: mostly a key block that both list, of which each loads half
// for both, else a block of each one's own. The steps that follow are each block's own. Where a
// block has fewer blocks to visit than `steps` the rest are pads: fills without data that nobody
// computes. There are at most two: one where a row has a single block (a tile has two coupled
// steps), and one that makes the steps of both blocks differ by a multiple of the ring's depth, so
// that every coupled step finds both rings at the same stage (a multicast lands at the same offset
// in both blocks).
//
// Barriers of a stage, in each block:
//   full   an arrival by the producer, and the bytes, whoever sends them
//   empty  an arrival by each of this block's own consumer warpgroups, for every fill
//   peer   an arrival by each of the other block's, for coupled fills only
// A producer waits for `empty` before every fill, and for `peer` too before coupled ones. A
// consumer that frees a stage arrives at its own `empty`, and at the other block's `peer` exactly
// when the stage's next fill is coupled. That fill is kVStages = 2 steps later: it is coupled when
// it lies among the coupled steps of this tile or beyond this tile's steps, for the next tile's
// first two steps are coupled.
//
// Why no phase is lost. A warpgroup arrives at `peer` for one coupled fill after it has consumed
// the coupled fill before it on that stage. That one's `full` completed only after both producers
// had seen their `peer` complete for it: each sent half of the data, or, where the blocks load
// their own, a token. So arrivals for two fills never meet in one phase. `empty` is local and as in
// the other forms. One warp frees a stage for its warpgroup, so all warps have to see it full
// first: the fence of the product joins them, and where a pad has none a barrier does.
//
// Why nothing waits for ever. Number the steps so that coupled ones agree in both blocks. A fill of
// step n waits for the stage of step n - 2: K is freed at step n - 2, V at step n - 1, the V of a
// tile's last block at the next tile's first step, pads of K just before that step and pads of V
// right after it. No consumer waits at a step for a fill of a later one, and it needs V of step
// n - 1 at step n. Only coupled fills wait for the other block, and for its steps before the same
// number; what a block does alone lies between a tile's last coupled step and the next tile's
// first, and waits for that block only. So the earliest unfinished step can always go on. (The
// blocks may not be coupled throughout: a row that ends early keeps the V of its last block until
// the next tile, and four coupled steps later the longer row would wait for that V.)
#pragma once

#include "src/backends/flash_sm90/work.cuh"
#include "src/cuda/pipeline.cuh"

namespace fovea::flash_sm90 {

/// The next item of a cluster: its first block draws and tells the other one. `index` counts draws.
/// The item for task j takes the slot of task j - 4. It is drawn when this block's consumers have
/// opened task j - 3, for which the other block's consumers had to free stages in task j - 4, so
/// the slot has been read.
template <Key kKey>
FOVEA_DEVICE int draw(uint32_t bars, const Params& p, uint32_t rank, int team, int index) {
  using T = Traits<kKey>;
  const uint32_t slot = index % kDrawSlots, barrier = bars + T::kDrawn + 8 * slot;
  const uint32_t value = bars - T::kBarrierOffset + T::kDrawnOffset + 4 * slot;
  if (rank == 0) {
    const int item = team + atomicAdd(p.next_item, 1);
    cuda::store_async_remote(cuda::map_to_cta(value, 1), item, cuda::map_to_cta(barrier, 1));
    return item;
  }
  cuda::mbarrier_expect(barrier, 4);
  cuda::mbarrier_wait(barrier, index / kDrawSlots & 1);
  return static_cast<int>(cuda::shared_load_4(value));
}

/// The K or V stream of one block, tile by tile.
template <Key kKey, bool kIsV>
struct SharedStream {
  using T = Traits<kKey>;
  const CUtensorMap* map;
  const uint32_t buffers, full, empty, peer, rank;
  const uint32_t other_full, token;  // the other block's
  const int column_step, panel_step;
  cuda::Ring<T::kVStages> ring;
  uint32_t peer_phases = 0;  // a bit per stage

  FOVEA_DEVICE SharedStream(uint32_t shared, const CUtensorMap* tensor, const Params& p,
                            uint32_t cluster_rank)
      : map(tensor),
        buffers(shared + (kIsV ? T::kVOffset : T::kKOffset)),
        full(shared + T::kBarrierOffset + (kIsV ? T::kVFull : T::kKFull)),
        empty(shared + T::kBarrierOffset + (kIsV ? T::kVEmpty : T::kKEmpty)),
        peer(shared + T::kBarrierOffset + (kIsV ? T::kVPeer : T::kKPeer)),
        rank(cluster_rank),
        other_full(cuda::map_to_cta(full, cluster_rank ^ 1)),
        token(cuda::map_to_cta(shared + T::kTokenOffset, cluster_rank ^ 1)),
        column_step(kIsV ? p.v_column_step : p.qk_column_step),
        panel_step(kIsV ? p.v_panel_step : p.qk_panel_step) {}

  /// One of the kCluster shares of a tile, into this block or into both.
  template <bool kBoth>
  FOVEA_DEVICE void load_share(uint32_t share, int row, int head, int batch) {
    const int first_panel = T::kSharePanels ? share * T::kLoadPanels : 0;
    const int share_row = T::kSharePanels ? 0 : share * T::kLoadRows;
    const uint32_t barrier = full + 8 * ring.stage;
#pragma unroll
    for (int n = 0; n < T::kLoadPanels; n++) {
      const int panel = first_panel + n;
      const uint32_t to = buffers + ring.stage * T::kKvBytes + panel * T::kKvPanelBytes +
                          share_row * T::Tile::kRowBytes;
      if constexpr (kBoth)
        cuda::tensor_load_multicast(to, map, barrier, panel * column_step, row + share_row,
                                    panel * panel_step, head, batch, (1 << T::kCluster) - 1,
                                    cuda::kEvictLast);
      else
        cuda::tensor_load(to, map, barrier, panel * column_step, row + share_row,
                          panel * panel_step, head, batch, cuda::kEvictLast);
      if (panel_step) break;
    }
  }

  FOVEA_DEVICE void fill_tile(const Params& p, const Task& t) {
    const int end = t.end, steps = t.steps, coupled = t.coupled, batch = t.batch;
    const int head = divide(t.head, p.kv_group);
    const int* list = list_of(p, t);
    const bool empty_row = t.kv_length == 0;
#pragma unroll 1
    for (int i = 0; i < steps; i++, ring.next()) {
      const int entry = i < end && !empty_row ? __ldg(list + i) : 0;
      const int row = (entry >> 1) * T::kBlockKv;
      cuda::mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      uint32_t bytes = i < end ? T::kKvBytes : 0;
      if (i < coupled) {
        cuda::mbarrier_wait(peer + 8 * ring.stage, (peer_phases >> ring.stage & 1) ^ 1);
        peer_phases ^= 1u << ring.stage;
        if (entry & 1) {
          cuda::mbarrier_expect(full + 8 * ring.stage, bytes);
          load_share<true>(rank, row, head, batch);
          continue;
        }
        bytes += 4;
        cuda::store_async_remote(token, 0, other_full + 8 * ring.stage);
      }
      cuda::mbarrier_expect(full + 8 * ring.stage, bytes);
      if (i < end)
#pragma unroll
        for (uint32_t share = 0; share < T::kCluster; share++)
          load_share<false>(share, row, head, batch);
    }
  }
};

}  // namespace fovea::flash_sm90
