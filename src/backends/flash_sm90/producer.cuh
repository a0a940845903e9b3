// The producer warpgroup: one thread that hands out tasks, one each for the K, V and Q streams; for
// pairs of rows two warpgroups, a warp that hands out and the three streams of either row. A stream
// waits until a buffer is empty and issues the tensor copies that fill it; the copies complete on
// the buffer's "full" barrier.
#pragma once

#include "src/backends/flash_sm90/row_pair.cuh"
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

/// The same for pairs of rows, whose tasks a whole warp writes.
template <Key kKey>
FOVEA_DEVICE void write_pair(uint8_t* storage, int slot, Segment s, bool more, const Params& p) {
  using T = Traits<kKey>;
  const int lane = threadIdx.x % 32;
  Task* const pair = reinterpret_cast<Task*>(storage + T::kTaskOffset) + slot * T::kTasks;
  more = __shfl_sync(~0u, more, 0);
  s.item = __shfl_sync(~0u, s.item, 0);
  s.group = __shfl_sync(~0u, s.group, 0);
  s.begin = 0;
  if (lane < T::kTasks) {
    pair[lane].begin = pair[lane].end = 0;
    pair[lane].common_bits = reinterpret_cast<uint32_t*>(storage + T::kBitsOffset) +
                             (slot * T::kTasks + lane) * kCommonWords;
    if (more) locate<kKey>(p, s, lane, pair[lane]);
  }
  __syncwarp();
  if (more) pair_rows<kKey>(p, pair);
}
template <Key kKey>
FOVEA_DEVICE void hand_out_pairs(uint8_t* storage, uint32_t bars, const Params& p, int who,
                                 int team) {
  using T = Traits<kKey>;
  const bool leader = threadIdx.x % 32 == 0;
  cuda::mbarrier_arrive(bars + T::kTaskFull);
  cuda::Ring<kTaskSlots> ring;
  Walk<kKey> walk(p, who, team);
  Segment s{};
  bool more = leader && walk.next(s);
  more = __shfl_sync(~0u, more, 0);
#pragma unroll 1
  while (more) {
    more = leader && walk.next(s);
    more = __shfl_sync(~0u, more, 0);
    ring.next();
    cuda::mbarrier_wait(bars + T::kTaskEmpty + 8 * ring.stage, ring.phase ^ 1);
    write_pair<kKey>(storage, ring.stage, s, more, p);
    cuda::mbarrier_arrive(bars + T::kTaskFull + 8 * ring.stage);
  }
}

/// The tasks in order, as the streams read them; each is handed back when it has been read.
template <Key kKey>
struct TaskReader {
  using T = Traits<kKey>;
  const Task* tasks;
  const uint32_t full;
  cuda::Ring<kTaskSlots> ring;
  FOVEA_DEVICE TaskReader(const Task* ring_base, uint32_t bars, int row = 0)
      : tasks(ring_base + row), full(bars + T::kTaskFull) {}
  FOVEA_DEVICE const Task& next() {
    cuda::mbarrier_wait(full + 8 * ring.stage, ring.phase);
    return tasks[ring.stage * T::kTasks];
  }
  FOVEA_DEVICE void done() {
    cuda::mbarrier_arrive(full - T::kTaskFull + T::kTaskEmpty + 8 * ring.stage);
    ring.next();
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
    reader.done();
  }
}

/// Tiles of K or V for one row of a pair: those that it alone lists, and the common ones that go
/// through its buffers.
template <Key kKey, bool kIsV>
FOVEA_DEVICE void produce_row(uint32_t shared, const Task* tasks, const CUtensorMap* map,
                              const Params& p, int row) {
  using T = Traits<kKey>;
  constexpr int kStages = kIsV ? T::kVStages : T::kKStages, kBuffers = T::kTasks * kStages;
  const uint32_t bars = shared + T::kBarrierOffset;
  const uint32_t full = bars + (kIsV ? T::kVFull : T::kKFull);
  const uint32_t empty = bars + (kIsV ? T::kVEmpty : T::kKEmpty);
  const uint32_t buffers = shared + (kIsV ? T::kVOffset : T::kKOffset);
  const int column_step = kIsV ? p.v_column_step : p.qk_column_step;
  const int panel_step = kIsV ? p.v_panel_step : p.qk_panel_step;
  uint32_t own = 0, common = 0;  // tiles so far
  uint32_t filled = 0;           // bit n: parity of the times that buffer n of the row was filled
  TaskReader<kKey> reader(tasks, bars, row);
  for (;;) {
    const Task& t = reader.next();
    if (t.begin == t.end) return;
    const int batch = t.batch, head = divide(t.head, p.kv_group);
    const auto load = [&](uint32_t buffer, uint32_t barrier, const int(&number)[2]) {
      const uint32_t stage = row * kStages + buffer;
      cuda::mbarrier_wait(empty + 8 * stage, (filled >> buffer & 1) ^ 1);
      filled ^= 1u << buffer;
      cuda::mbarrier_expect(barrier, T::kKvBytes);
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int panel = 0; panel < T::kPanels; panel++)
          cuda::tensor_load(buffers + stage * T::kKvBytes + panel * T::kKvPanelBytes +
                                n * T::kLoadRows * T::Tile::kRowBytes,
                            map, barrier, panel * column_step, number[n] * T::kLoadRows,
                            panel * panel_step, head, batch, cuda::kEvictLast);
    };
    // A tile's blocks are read before the buffer of the one before it is waited for, but for the
    // first common tile's.
    const int own_tiles = t.own, common_tiles = t.count - t.own;
    RowTiles<kKey> own_list(p, t, false), common_list(p, t, true);
    if (own_tiles > 0) own_list.read();
#pragma unroll 1
    for (int i = 0; i < own_tiles; i++, own++) {
      const int number[2] = {own_list.number[0], own_list.number[1]};
      if (i + 1 < own_tiles) own_list.read();
      const uint32_t buffer = own % kStages;
      load(buffer, full + 8 * (row * kStages + buffer), number);
    }
    if (common_tiles > 0) common_list.read();
#pragma unroll 1
    for (int i = 0; i < common_tiles; i++, common++) {
      const int number[2] = {common_list.number[0], common_list.number[1]};
      if (i + 1 < common_tiles) common_list.read();
      const uint32_t buffer = common % kBuffers;
      if (static_cast<int>(buffer / kStages) == row)
        load(buffer % kStages, full + 8 * (kBuffers + buffer), number);
    }
    reader.done();
  }
}

/// Query tiles: of every warpgroup, or of one row of a pair.
template <Key kKey>
FOVEA_DEVICE void produce_q(uint32_t shared, const Task* tasks, const CUtensorMap* map,
                            const Params& p, int row_of_pair = 0) {
  using T = Traits<kKey>;
  const uint32_t bars = shared + T::kBarrierOffset;
  constexpr int kTiles = T::kRowPair ? 1 : T::kWarpgroups;  // of 64 rows
  cuda::Ring<T::kQStages> ring;
  TaskReader<kKey> reader(tasks, bars, row_of_pair);
  for (;; ring.next()) {
    const Task& t = reader.next();
    const int row = t.q_start + t.m * T::kTaskRows, head = t.head, batch = t.batch;
    const bool none = t.begin == t.end;
#pragma unroll 1
    for (int w = 0; w < kTiles; w++) {
      const uint32_t i = ring.stage * T::kWarpgroups + w + row_of_pair;
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
    reader.done();
  }
}

}  // namespace fovea::flash_sm90
