// The producer warpgroup: one thread that hands out tasks, one each for the K, V and Q streams. A
// stream waits until a buffer is empty and issues the tensor copies that fill it; the copies
// complete on the buffer's "full" barrier.
#pragma once

#include "src/backends/flash_sm90/work.cuh"
#include "src/cuda/pipeline.cuh"

namespace fovea::flash_sm90 {

template <Key kKey>
FOVEA_DEVICE void write_task(Task& task, const Segment& s, bool more, const Walk<kKey>& walk,
                             const Params& p, uint32_t rank) {
  if (!more) {
    task.begin = task.end = 0;
    return;
  }
  locate<kKey>(p, s, rank, task);
  task.units = walk.units;
  task.pieces = walk.pieces;
}
/// Writes the tasks of this thread block, in order, to a ring in shared memory. The first one is
/// already there: the kernel writes it while the block starts up.
template <Key kKey>
FOVEA_DEVICE void hand_out(Task* tasks, uint32_t bars, const Params& p, uint32_t rank, int who,
                           int team) {
  using T = Traits<kKey>;
  cuda::mbarrier_arrive(bars + T::kTaskFull);
  cuda::Ring<kTaskSlots> ring;
  Walk<kKey> walk(p, who, team);
  Segment s;
  bool more = walk.next(s);
#pragma unroll 1
  while (more) {
    more = walk.next(s);
    ring.next();
    cuda::mbarrier_wait(bars + T::kTaskEmpty + 8 * ring.stage, ring.phase ^ 1);
    write_task<kKey>(tasks[ring.stage], s, more, walk, p, rank);
    cuda::mbarrier_arrive(bars + T::kTaskFull + 8 * ring.stage);
  }
}

/// The tasks in order, as the streams read them.
template <Key kKey>
struct TaskReader {
  const Task* tasks;
  const uint32_t full;
  cuda::Ring<kTaskSlots> ring;
  FOVEA_DEVICE TaskReader(const Task* ring_base, uint32_t bars)
      : tasks(ring_base), full(bars + Traits<kKey>::kTaskFull) {}
  FOVEA_DEVICE const Task& next() {
    cuda::mbarrier_wait(full + 8 * ring.stage, ring.phase);
    const Task& task = tasks[ring.stage];
    ring.next();
    return task;
  }
};

/// Numbers of the listed blocks of one tile, as they stand in the list: what is made of them waits
/// until they are used, so that the reads are under way while the tile waits for its buffer.
template <Key kKey>
struct Listed {
  using T = Traits<kKey>;
  static constexpr int kParts = T::kPairs ? 2 : 1;
  const int* list;
  int count, last, halves;
  bool empty;
  int position[kParts] = {}, number[kParts] = {};

  FOVEA_DEVICE Listed(const Params& p, const Task& t)
      : list(list_of(p, t)),
        count(t.count),
        last(t.first_block - 1),
        halves(T::kHalved ? p.list_halves : 0),
        empty(t.kv_length == 0) {}
  FOVEA_DEVICE void read(int i) {
#pragma unroll
    for (int n = 0; n < kParts; n++) {
      const int from_end = count - 1 - i;
      position[n] = T::kPairs ? min(2 * from_end + n, last) : from_end;
      number[n] = empty ? 0 : __ldg(list + (position[n] >> halves));
    }
  }
  /// First key of a part of the tile that was read.
  FOVEA_DEVICE int first_key(int n) const {
    const int block = empty ? 0 : number[n] << halves | (position[n] & halves);
    return block * (T::kPairs ? T::kLoadRows : T::kBlockKv);
  }
};

template <Key kKey, bool kIsV>
FOVEA_DEVICE void produce_kv(uint32_t shared, const Task* tasks, const CUtensorMap* map,
                             const Params& p, uint32_t rank) {
  using T = Traits<kKey>;
  const uint32_t bars = shared + T::kBarrierOffset;
  const uint32_t full = bars + (kIsV ? T::kVFull : T::kKFull);
  const uint32_t empty = bars + (kIsV ? T::kVEmpty : T::kKEmpty);
  const uint32_t buffers = shared + (kIsV ? T::kVOffset : T::kKOffset);
  const int column_step = kIsV ? p.v_column_step : p.qk_column_step;
  const int panel_step = kIsV ? p.v_panel_step : p.qk_panel_step;
  cuda::Ring<(kIsV ? T::kVStages : T::kKStages)> ring;
  TaskReader<kKey> reader(tasks, bars);
  for (;;) {
    const Task& t = reader.next();
    const int end = t.end, batch = t.batch, head = divide(t.head, p.kv_group);
    int i = t.begin;
    if (i == end) return;
    Listed<kKey> ahead(p, t);
    if constexpr (!T::kDense) ahead.read(i);
#pragma unroll 1
    for (; i < end; i++, ring.next()) {
      const Listed<kKey> now = ahead;
      int row = 0;
      if constexpr (T::kDense)
        row = t.kv_start + block_of<kKey>(p, t, i) * T::kBlockKv;
      else
        ahead.read(min(i + 1, end - 1));
      cuda::mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      if constexpr (T::kPairs) {
        const uint32_t barrier = full + 8 * ring.stage;
        const uint32_t target = buffers + ring.stage * T::kKvBytes;
        cuda::mbarrier_expect(barrier, T::kKvBytes);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
          for (int panel = 0; panel < T::kPanels; panel++)
            cuda::tensor_load(
                target + panel * T::kKvPanelBytes + n * T::kLoadRows * T::Tile::kRowBytes, map,
                barrier, panel * column_step, now.first_key(n), panel * panel_step, head, batch,
                cuda::kEvictLast);
        continue;
      }
      if constexpr (!T::kDense) row = now.first_key(0);
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
FOVEA_DEVICE void produce_q(uint32_t shared, const Task* tasks, const CUtensorMap* map,
                            const Params& p) {
  using T = Traits<kKey>;
  const uint32_t bars = shared + T::kBarrierOffset;
  cuda::Ring<T::kQStages> ring;
  TaskReader<kKey> reader(tasks, bars);
  for (;; ring.next()) {
    const Task& t = reader.next();
    const int row = t.q_start + t.m * T::kBlockQ, head = t.head, batch = t.batch;
    const bool none = t.begin == t.end;
#pragma unroll 1
    for (int w = 0; w < T::kWarpgroups; w++) {
      const uint32_t i = ring.stage * T::kWarpgroups + w;
      const uint32_t full = bars + T::kQFull + 8 * i;
      cuda::mbarrier_wait(bars + T::kQEmpty + 8 * i, ring.phase ^ 1);
      if (none) {
        cuda::mbarrier_arrive(full);
        continue;
      }
      cuda::mbarrier_expect(full, T::kQBytes);
#pragma unroll
      for (int n = 0; n < T::kPanels; n++) {
        cuda::tensor_load(shared + i * T::kQBytes + n * T::kQPanelBytes, map, full,
                          n * p.qk_column_step, row + w * 64, n * p.qk_panel_step, head, batch,
                          cuda::kEvictFirst);
        if (p.qk_panel_step) break;
      }
    }
    if (none) return;
  }
}

}  // namespace fovea::flash_sm90
