// The producer warpgroup: one thread each for the K, V and Q streams, and one that hands out tasks.
// A stream waits until a buffer is empty and issues the tensor copies that fill it;
// the copies complete on the buffer's "full" barrier.
#pragma once

#include "src/backends/flash_sm90/tasks.cuh"
#include "src/cuda/pipeline.cuh"

namespace fovea::flash_sm90 {

template <Key kKey, bool kIsV>
FOVEA_DEVICE void produce_kv(uint32_t shared, StreamTasks<kKey> tasks, const CUtensorMap* map,
                             const Params& p, uint32_t rank) {
  using T = Traits<kKey>;
  const uint32_t bars = shared + T::kBarrierOffset;
  const uint32_t full = bars + (kIsV ? T::kVFull : T::kKFull);
  const uint32_t empty = bars + (kIsV ? T::kVEmpty : T::kKEmpty);
  const uint32_t buffers = shared + (kIsV ? T::kVOffset : T::kKOffset);
  const int column_step = kIsV ? p.v_column_step : p.qk_column_step;
  const int panel_step = kIsV ? p.v_panel_step : p.qk_panel_step;
  cuda::Ring<T::kStages> ring;
  while (const Task* task = tasks.next()) {
    const Task& t = *task;
    const int end = t.end, batch = t.batch, head = divide(t.head, p.kv_group);
#pragma unroll 1
    for (int i = t.begin; i < end; i++, ring.next()) {
      const int row = t.kv_start + block_of<kKey>(p, t, i) * T::kBlockKv;
      cuda::mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      const uint32_t barrier = full + 8 * ring.stage;
      const uint32_t target = buffers + ring.stage * T::kKvBytes;
      cuda::mbarrier_expect(barrier, T::kKvBytes);
      // Every block of the cluster loads its share for all.
      const int first_panel = T::kCluster > 1 && T::kSharePanels ? rank * T::kLoadPanels : 0;
      const int share_row = T::kCluster > 1 && !T::kSharePanels ? rank * T::kLoadRows : 0;
#pragma unroll
      for (int n = 0; n < T::kLoadPanels; n++) {
        const int panel = first_panel + n;
        const uint32_t to = target + panel * T::kKvPanelBytes + share_row * T::Tile::kRowBytes;
        if constexpr (T::kCluster == 1)
          cuda::tensor_load(to, map, barrier, panel * column_step, row, panel * panel_step, head,
                            batch, cuda::kEvictLast);
        else
          cuda::tensor_load_multicast(to, map, barrier, panel * column_step, row + share_row,
                                      panel * panel_step, head, batch, (1 << T::kCluster) - 1,
                                      cuda::kEvictLast);
        if (panel_step) break;
      }
    }
  }
}

template <Key kKey>
FOVEA_DEVICE void produce_q(uint32_t shared, StreamTasks<kKey> tasks, const CUtensorMap* map,
                            const Params& p) {
  using T = Traits<kKey>;
  const uint32_t bars = shared + T::kBarrierOffset;
  cuda::Ring<T::kQStages> ring;
  for (; const Task* task = tasks.next(); ring.next()) {
    const int row = task->q_start + task->m * T::kBlockQ, head = task->head, batch = task->batch;
#pragma unroll 1
    for (int w = 0; w < T::kWarpgroups; w++) {
      const uint32_t i = ring.stage * T::kWarpgroups + w;
      const uint32_t full = bars + T::kQFull + 8 * i;
      cuda::mbarrier_wait(bars + T::kQEmpty + 8 * i, ring.phase ^ 1);
      cuda::mbarrier_expect(full, T::kQBytes);
#pragma unroll
      for (int n = 0; n < T::kPanels; n++) {
        cuda::tensor_load(shared + i * T::kQBytes + n * T::kQPanelBytes, map, full,
                          n * p.qk_column_step, row + w * 64, n * p.qk_panel_step, head, batch,
                          cuda::kEvictFirst);
        if (p.qk_panel_step) break;
      }
    }
  }
}

}  // namespace fovea::flash_sm90
