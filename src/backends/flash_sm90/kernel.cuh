// Exact attention for Hopper (sm_90a); README.md describes the schedule.
#pragma once

#include "src/backends/flash_sm90/consumer.cuh"
#include "src/backends/flash_sm90/launch.hpp"
#include "src/backends/flash_sm90/producer.cuh"

namespace fovea::flash_sm90 {

template <std::uint32_t kCode>
inline constexpr Key kDecoded = decode(kCode);

template <std::uint32_t kCode>
__global__ void __launch_bounds__(Traits<kDecoded<kCode>>::kThreads, 1)
    flash_sm90_kernel(const __grid_constant__ CUtensorMap q_map,
                      const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map,
                      const __grid_constant__ CUtensorMap out_map,
                      const __grid_constant__ Params p) {
  constexpr Key kKey = kDecoded<kCode>;
  using T = Traits<kKey>;
  extern __shared__ __align__(1024) uint8_t storage[];
  const uint32_t shared = cuda::shared_address(storage), bars = shared + T::kBarrierOffset;
  Task* tasks = reinterpret_cast<Task*>(storage + T::kTaskOffset);
  const uint32_t rank = T::kCluster > 1 ? cuda::cluster_rank() : 0;
  const int who = blockIdx.x / T::kCluster, team = gridDim.x / T::kCluster;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  constexpr int kBarriers = T::kBarrierBytes / 8;
  if (threadIdx.x < 32) {
    for (int n = static_cast<int>(threadIdx.x); n < kBarriers; n += 32) {
      const uint32_t at = 8 * n;
      const bool kv_empty =
          (at >= T::kKEmpty && at < T::kVFull) || (at >= T::kVEmpty && at < T::kTaskFull);
      const bool q_empty = at >= T::kQEmpty && at < T::kKFull;
      const int arrivals = kv_empty              ? T::kReleases
                           : q_empty             ? 4
                           : at >= T::kTaskEmpty ? T::kTaskReaders
                           : at >= T::kTaskFull  ? T::kTaskWriters
                                                 : 1;
      cuda::mbarrier_init(bars + at, arrivals);
    }
    cuda::mbarrier_init_fence();
    if (threadIdx.x == 0) {
      cuda::tensor_map_prefetch(&q_map);
      cuda::tensor_map_prefetch(&k_map);
      cuda::tensor_map_prefetch(&v_map);
      cuda::tensor_map_prefetch(&out_map);
    }
  }
  if (threadIdx.x / 32 == 3 && (T::kRowPair || threadIdx.x == 96)) {
    if constexpr (T::kGrouped) cuda::wait_for_earlier_launches();  // reads lengths and lists
    Walk<kKey> walk(p, who, team);
    Segment s{};
    const bool more = threadIdx.x == 96 && walk.next(s);
    if constexpr (T::kRowPair)
      write_pair<kKey>(storage, 0, s, more, p);
    else
      write_task<kKey>(tasks[0], s, more, walk, p, rank);
  }
  if constexpr (T::kCluster > 1)
    cuda::cluster_sync();
  else
    __syncthreads();

  if (warpgroup < T::kSchedule.producers) {
    cuda::registers_decrease<T::kSchedule.producer_registers>();
    cuda::wait_for_earlier_launches();
    cuda::allow_next_launch();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if constexpr (T::kRowPair) {
      const int role = warp % 4, row = warp / 4;
      if (role == 3) {
        if (row == 0) hand_out_pairs<kKey>(storage, bars, p, who, team);
      } else if (threadIdx.x % 32 == 0) {
        if (role == 0)
          produce_row<kKey, false>(shared, tasks, &k_map, p, row);
        else if (role == 1)
          produce_row<kKey, true>(shared, tasks, &v_map, p, row);
        else
          produce_q<kKey>(shared, tasks, &q_map, p, row);
      }
    } else if (threadIdx.x % 32 == 0) {
      if (warp == 0)
        produce_kv<kKey, false>(shared, tasks, &k_map, p, rank);
      else if (warp == 1)
        produce_kv<kKey, true>(shared, tasks, &v_map, p, rank);
      else if (warp == 2)
        produce_q<kKey>(shared, tasks, &q_map, p);
      else
        hand_out<kKey>(tasks, bars, p, rank, who, team);
    }
    __syncwarp();
  } else {
    cuda::registers_increase<T::kSchedule.consumer_registers>();
    cuda::wait_for_earlier_launches();
    Consumer<kKey>(p, &out_map, shared, tasks, rank, who, warpgroup - T::kSchedule.producers)
        .run(who);
    // Shared memory must outlive the copies out of it.
    if (T::kSchedule.staged_output && threadIdx.x % 32 == 0) cuda::tensor_store_wait_read();
  }
  // No block may leave while its neighbour still signals it.
  if constexpr (T::kCluster > 1) cuda::cluster_sync();
}

template <Key kKey>
KernelInfo kernel_info() {
  using T = Traits<kKey>;
  return {reinterpret_cast<const void*>(&flash_sm90_kernel<encode(kKey)>),
          T::kSharedBytes,
          T::kThreads,
          T::kLoadRows,
          T::kLoadPanels,
          T::kPanels};
}

}  // namespace fovea::flash_sm90
