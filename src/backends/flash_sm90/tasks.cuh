// How the roles of a thread block get their tasks: one thread works them out (lengths, documents and lists
// live in device memory) and hands them out through a ring in shared memory. For plain dense work every
// role could compute its own in uniform registers; measured, that gains nothing on short problems and
// makes ptxas lose the overlap of the main loop in several instances.
#pragma once

#include "src/backends/flash_sm90/work.cuh"
#include "src/cuda/pipeline.cuh"

namespace fovea::flash_sm90 {

/// Where a role is: its thread block's place in the team.
struct Place {
  const Task* tasks;  // the ring
  uint32_t bars;
  uint32_t rank;
  int who, team;
};

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
template <Key kKey>
FOVEA_DEVICE void write_first_task(Task& task, const Params& p, const Place& place) {
  Walk<kKey> walk(p, place.who, place.team);
  Segment s;
  const bool more = walk.next(s);
  write_task<kKey>(task, s, more, walk, p, place.rank);
}
/// Writes the tasks of this thread block, in order, to the ring. The first one is already there: the kernel
/// writes it while the block starts up.
template <Key kKey>
FOVEA_DEVICE void hand_out(Task* tasks, const Params& p, const Place& place) {
  using T = Traits<kKey>;
  cuda::Ring<kTaskSlots> ring;
  Walk<kKey> walk(p, place.who, place.team);
  bool more = true;
#pragma unroll 1
  for (bool first = true; more; ring.next(), first = false) {
    Segment s;
    more = walk.next(s);
    if (!first) {
      cuda::mbarrier_wait(place.bars + T::kTaskEmpty + 8 * ring.stage, ring.phase ^ 1);
      write_task<kKey>(tasks[ring.stage], s, more, walk, p, place.rank);
    }
    cuda::mbarrier_arrive(place.bars + T::kTaskFull + 8 * ring.stage);
  }
}

/// The tasks of a producer stream in order.
template <Key kKey>
struct StreamTasks {
  const Place place;
  cuda::Ring<kTaskSlots> ring;
  FOVEA_DEVICE explicit StreamTasks(const Place& at) : place(at) {}
  /// Null after the last one.
  FOVEA_DEVICE const Task* next() {
    cuda::mbarrier_wait(place.bars + Traits<kKey>::kTaskFull + 8 * ring.stage, ring.phase);
    const Task* task = place.tasks + ring.stage;
    ring.next();
    return task->begin != task->end ? task : nullptr;
  }
};

/// The tasks of a consumer: the current one, the one after it, and the finished one whose output is due.
template <Key kKey>
struct ConsumerTasks {
  using T = Traits<kKey>;
  const Place place;
  const Task *task, *following = nullptr, *last = nullptr;
  int slot = 0;
  uint32_t phase = 0;
  int begin = 0, end = 0, next_begin = 0, next_end = 0;
  bool final = false;
  FOVEA_DEVICE explicit ConsumerTasks(const Place& at) : place(at), task(at.tasks) {}
  /// False when there is nothing to do.
  FOVEA_DEVICE bool open() {
    cuda::mbarrier_wait(place.bars + T::kTaskFull, 0);
    begin = cuda::uniform(task->begin);
    end = cuda::uniform(task->end);
    return begin != end;
  }
  /// Looks up the following task.
  FOVEA_DEVICE void peek() {
    const int next = slot + 1 == kTaskSlots ? 0 : slot + 1;
    cuda::mbarrier_wait(place.bars + T::kTaskFull + 8 * next, phase ^ (next == 0));
    following = place.tasks + next;
    next_begin = cuda::uniform(following->begin);
    next_end = cuda::uniform(following->end);
    final = next_begin == next_end;
  }
  FOVEA_DEVICE void finish() { last = task; }
  FOVEA_DEVICE void advance() {
    task = following;
    begin = next_begin;
    end = next_end;
  }
  /// The finished task is no longer needed by this warp.
  FOVEA_DEVICE void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) cuda::mbarrier_arrive(place.bars + T::kTaskEmpty + 8 * slot);
    slot = slot + 1 == kTaskSlots ? 0 : slot + 1;
    phase ^= slot == 0;
  }
  FOVEA_DEVICE const Task& current() const { return *task; }
  FOVEA_DEVICE const Task& finished() const { return *last; }
  FOVEA_DEVICE int units() const { return task->units; }
  FOVEA_DEVICE int pieces() const { return task->pieces; }
};

}  // namespace fovea::flash_sm90
