// A consumer warpgroup: 64 query rows, scores S and output O in registers.
//
// One software pipeline runs over all of its work. Every step issues Q.K of the current block and
// P.V of the previous one together and computes the softmax while P.V is in the tensor core; the
// step that opens a new query tile issues the old tile's last P.V beside the new tile's first Q.K,
// so nothing drains between tiles.
#pragma once

#include "src/backends/flash_sm90/mask.cuh"
#include "src/backends/flash_sm90/output.cuh"
#include "src/backends/flash_sm90/scores.cuh"
#include "src/cuda/pipeline.cuh"

namespace fovea::flash_sm90 {

template <Key kKey>
struct Consumer {
  using T = Traits<kKey>;
  using Tile = typename T::Tile;
  using Type = typename T::Type;

  static constexpr bool kPartialReference = T::kReferenceStep > 1;

  const Params& p;
  const CUtensorMap* out_map;
  const Task* const tasks;
  const uint32_t shared, bars, rank;
  const int warpgroup, warp, block;
  const bool leader;  // lane 0 of its warp
  // Where this thread hands K and V buffers back: one thread per warpgroup and block of the
  // cluster.
  const uint32_t release_base;
  uint32_t q_descriptor;
  const uint32_t k_descriptor, v_descriptor;
  const Lane lane;
  cuda::Ring<T::kKStages> k_ring;
  cuda::Ring<T::kVStages> v_ring;
  // Row pairs instead: the tile of K, the one of V, and tiles before the next one of K; find_v
  // counts them.
  RowSlot k_slot{}, v_slot{};
  uint32_t own_tiles = 0, common_tiles = 0;
  cuda::Ring<T::kQStages> q_ring;
  cuda::Ring<kTaskSlots> task_ring;

  float s[T::kScores], o[T::kOutputs];
  uint32_t probabilities[T::kScores / 2];
  cuda::Rows rows;
  cuda::Correction correction;
  int accumulate = 0;  // 0 while O holds nothing of the current segment

  FOVEA_DEVICE Consumer(const Params& params, const CUtensorMap* map, uint32_t shared_base,
                        const Task* task_ring, uint32_t cluster_rank, int member, int index)
      : p(params),
        out_map(map),
        tasks(task_ring + (T::kRowPair ? index : 0)),
        shared(shared_base),
        bars(shared_base + T::kBarrierOffset),
        rank(cluster_rank),
        warpgroup(index),
        warp(threadIdx.x % 128 / 32),
        block(member * T::kCluster + static_cast<int>(cluster_rank)),
        leader(threadIdx.x % 32 == 0),
        release_base(T::kCluster == 1 ? bars : cuda::map_to_cta(bars, warp % T::kCluster)),
        q_descriptor(Tile::descriptor_low(shared + index * T::kQBytes, 16)),
        k_descriptor(Tile::descriptor_low(shared + T::kKOffset, 16)),
        v_descriptor(Tile::descriptor_low(shared + T::kVOffset, T::kKvPanelBytes)),
        lane{(T::kRowPair ? 0 : index * 64) + warp * 16 + static_cast<int>(threadIdx.x % 32) / 4,
             2 * static_cast<int>(threadIdx.x % 4)} {}

  // Barriers
  // ----------------------------------------------------------------------------------------

  FOVEA_DEVICE uint32_t q_slot() const { return 8 * (q_ring.stage * T::kWarpgroups + warpgroup); }
  FOVEA_DEVICE void wait_q() { cuda::mbarrier_wait(bars + T::kQFull + q_slot(), q_ring.phase); }
  FOVEA_DEVICE uint32_t k_stage() const { return T::kRowPair ? k_slot.buffer : k_ring.stage; }
  FOVEA_DEVICE uint32_t v_stage() const { return T::kRowPair ? v_slot.buffer : v_ring.stage; }
  FOVEA_DEVICE void wait_k() {
    if constexpr (T::kRowPair)
      cuda::mbarrier_wait(bars + T::kKFull + 8 * k_slot.full, k_slot.parity);
    else
      cuda::mbarrier_wait(bars + T::kKFull + 8 * k_ring.stage, k_ring.phase);
  }
  FOVEA_DEVICE void wait_v() {
    if constexpr (T::kRowPair)
      cuda::mbarrier_wait(bars + T::kVFull + 8 * v_slot.full, v_slot.parity);
    else
      cuda::mbarrier_wait(bars + T::kVFull + 8 * v_ring.stage, v_ring.phase);
  }
  FOVEA_DEVICE void release(uint32_t offset, uint32_t arrivals) {
    if (!leader || warp >= T::kCluster) return;
    if constexpr (T::kRowPair)
      cuda::mbarrier_arrive(release_base + offset, arrivals);
    else if constexpr (T::kCluster == 1)
      cuda::mbarrier_arrive(release_base + offset);
    else
      cuda::mbarrier_arrive_remote(release_base + offset);
  }
  /// Every warp: each may read its rows of Q again after the products.
  FOVEA_DEVICE void free_q(bool last) {
    if (last && leader) cuda::mbarrier_arrive(bars + T::kQEmpty + q_slot());
  }
  FOVEA_DEVICE void free_k() {
    release(T::kKEmpty + 8 * k_stage(), k_slot.arrivals);
    k_ring.next();
  }
  FOVEA_DEVICE void free_v() {
    release(T::kVEmpty + 8 * v_stage(), v_slot.arrivals);
    v_ring.next();
  }
  // Row pairs: the next tile's K, and its V once the last one's is free.
  FOVEA_DEVICE void find_k(bool common) {
    if constexpr (T::kRowPair)
      k_slot = common ? common_slot<T::kKStages>(common_tiles)
                      : own_slot<T::kKStages>(own_tiles, warpgroup);
  }
  FOVEA_DEVICE void find_v(bool common) {
    if constexpr (T::kRowPair) {
      v_slot = common ? common_slot<T::kVStages>(common_tiles)
                      : own_slot<T::kVStages>(own_tiles, warpgroup);
      own_tiles += common ? 0 : 1;
      common_tiles += common ? 1 : 0;
    }
  }
  // Turns: warpgroup w waits on named barrier 1 + w; the one before it in the circle arrives there.
  // Row pairs: only at common tiles and at the first own ones, as many as the shorter row has.
  FOVEA_DEVICE void take_turn(bool turned) {
    if (!T::kSchedule.turns || !turned) return;
    if (warpgroup == 0)
      cuda::named_sync<1>(256);
    else if (T::kWarpgroups == 2 || warpgroup == 1)
      cuda::named_sync<2>(256);
    else
      cuda::named_sync<3>(256);
  }
  FOVEA_DEVICE void pass_turn(bool turned) {
    if (!T::kSchedule.turns || !turned) return;
    if (warpgroup == T::kWarpgroups - 1)
      cuda::named_arrive<1>(256);
    else if (T::kWarpgroups == 2 || warpgroup == 0)
      cuda::named_arrive<2>(256);
    else
      cuda::named_arrive<3>(256);
  }

  // Products
  // ----------------------------------------------------------------------------------------

  FOVEA_DEVICE void issue_qk() {
    const uint32_t k = (k_descriptor + k_stage() * (T::kKvBytes >> 4));
    const uint32_t q = q_descriptor;
#pragma unroll
    for (int step = 0; step < T::kHeadDim / 16; step++) {
      const uint32_t panel = step / Tile::kStepsPerPanel, at = step % Tile::kStepsPerPanel * 32;
      cuda::WgmmaShared<Type, T::kBlockKv>::multiply(
          s, Tile::descriptor(q + ((panel * T::kQPanelBytes + at) >> 4)),
          Tile::descriptor(k + ((panel * T::kKvPanelBytes + at) >> 4)), step != 0);
    }
  }
  FOVEA_DEVICE void issue_pv() {
    const uint32_t v = (v_descriptor + v_stage() * (T::kKvBytes >> 4));
    uint32_t(&a)[T::kScores / 2] = probabilities;
#pragma unroll
    for (int step = 0; step < T::kBlockKv / 16; step++)
      cuda::WgmmaRegisters<Type, T::kHeadDim>::multiply(
          o, a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3],
          Tile::descriptor(v + ((step * 16 * Tile::kRowBytes) >> 4)), step == 0 ? accumulate : 1);
  }
  /// Q.K of the current block beside P.V of the previous one.
  FOVEA_DEVICE void issue_both(bool turned = true) {
    take_turn(turned);
    cuda::pin(s);
    cuda::pin(o);
    cuda::pin(probabilities);
    cuda::wgmma_fence();
    issue_qk();
    cuda::wgmma_commit();
    wait_v();
    cuda::wgmma_fence();
    issue_pv();
    cuda::wgmma_commit();
    pass_turn(turned);
  }
  /// Returns when S is there.
  FOVEA_DEVICE void wait_scores() {
    cuda::wgmma_wait<1>();
    cuda::pin(s);
    free_k();
  }
  /// Probabilities of S beside the running P.V, whose buffer is handed back; their sums.
  template <bool kFirst>
  FOVEA_DEVICE cuda::Sums exponentiate() {
    constexpr int kEarly = kFirst ? T::kFirstScores : T::kEarlyScores;
    cuda::Sums here;
    cuda::exponentials<0, kEarly>(s, here, correction, p.scale_log2);
    cuda::pin_exponentials<kEarly>(s);
    // Never true, but it keeps the compiler from computing all of them behind the wait, which it
    // does at the start of a tile.
    if constexpr (kFirst)
      if (__any_sync(~0u, here.sum[0] + here.sum[1] < 0.f)) __trap();
    cuda::wgmma_wait<0>();
    cuda::pin(o);
    cuda::pin(probabilities);
    free_v();
    cuda::exponentials<kEarly, T::kScores>(s, here, correction, p.scale_log2);
    cuda::pack<Type>(s, probabilities);
    return here;
  }

  // A reference that stays
  // -----------------------------------------------------------------------------

  /// After the first blocks of a tile. Rows without a finite maximum get a reference against which
  /// any probability is infinite or NaN.
  FOVEA_DEVICE void keep_reference() {
#pragma unroll
    for (int h = 0; h < 2; h++) correction.maximum[h] = rows.maximum[h] * p.scale_log2;
  }
  /// Raises the reference to the block's largest probability, in whole powers of two, so that what
  /// exists is scaled exactly. No product is running. kFirst: O is not this tile's yet.
  template <bool kFirst>
  FOVEA_DEVICE void raise_reference(cuda::Sums& here, const Task& t, int i) {
    constexpr float kLost = 0x1p100f;
    if (__any_sync(~0u, !(here.sum[0] < kLost && here.sum[1] < kLost))) {
      const int q = q_ring.stage * T::kWarpgroups + warpgroup;
      warp_scores<kKey>(s, shared + q * T::kQBytes, p, t, i);
      cuda::row_maximum<true, cuda::Rescale::always>(s, rows, correction, p.scale_log2);
      here = {};
      cuda::exponentials<0, T::kScores>(s, here, correction, p.scale_log2);
      keep_reference();
    } else {
      cuda::raise_reference(s, rows, here, correction, p.scale_log2);
    }
    cuda::pack<Type>(s, probabilities);
    if constexpr (!kFirst) cuda::rescale<cuda::Rescale::always>(o, correction);
  }
  FOVEA_DEVICE bool outgrown(const cuda::Sums& here) const {  // NaN too
    return !(here.sum[0] <= T::kGrowthLimit && here.sum[1] <= T::kGrowthLimit);
  }
  /// A block within a tile against the reference: no maximum and, mostly, no rescaling of O.
  FOVEA_DEVICE void step_against_reference(const Task& t, int i, bool last, bool common = true,
                                           bool turned = true) {
    find_k(common);
    wait_k();
    issue_both(turned);
    wait_scores();
    cuda::Sums here = exponentiate<false>();
    find_v(common);
    if (__any_sync(~0u, outgrown(here))) raise_reference<false>(here, t, i);
    rows.add(here);
    free_q(last);
    accumulate = 1;
  }

  // Partial tiles
  // -----------------------------------------------------------------------------------

  /// Makes the V tile of visited block i safe for P.V.
  FOVEA_DEVICE void guard_values(const Task& t, int i) {
    wait_v();
    const uint32_t v = shared + T::kVOffset + v_stage() * T::kKvBytes;
    if constexpr (T::kBand) {
      constexpr int kThreads = 128 * T::kWarpgroups;
      const int thread = warpgroup * 128 + threadIdx.x % 128;
      const bool found = holds_non_finite<kKey>(v, thread, kThreads);
      if (cuda::uniform(cuda::named_any<7>(kThreads, found)) == 0) return;
      if (!accumulate) {
#pragma unroll
        for (int n = 0; n < T::kOutputs; n++) o[n] = 0.f;
        accumulate = 1;
      }
      add_non_finite<kKey>(o, v, p, t, i, lane);
      cuda::named_sync<7>(kThreads);
      clear_non_finite<kKey>(v, thread, kThreads);
      cuda::named_sync<7>(kThreads);
    } else {
      clear_hidden_values<kKey>(v, p, t, i);
      warpgroup_sync(warpgroup);
    }
  }

  /// A block within a tile.
  template <bool kMasked>
  FOVEA_DEVICE void step(const Task& t, int i, bool last, bool common = true, bool turned = true) {
    find_k(common);
    wait_k();
    issue_both(turned);
    wait_scores();
    free_q(last);
    if constexpr (kMasked) hide<kKey>(s, p, t, i, lane);
    cuda::row_maximum<true, T::kRescale>(s, rows, correction, p.scale_log2);
    rows.add(exponentiate<false>());
    find_v(common);
    cuda::rescale<T::kRescale>(o, correction);
    accumulate = 1;
    if constexpr (kMasked) guard_values(t, i);
  }

  /// The first block of a tile beside the last P.V of another one; returns the sums. Where nothing
  /// is hidden a part of the scores makes the reference, which the others may exceed as those of
  /// later blocks may: the caller checks that.
  FOVEA_DEVICE cuda::Sums open_tile(const Task& t, int i, bool masked) {
    float top[2];
    if (masked) hide<kKey>(s, p, t, i, lane);
    const bool part = kPartialReference && !masked;
    if (part)
      cuda::thread_maximum<T::kReferenceStep>(s, top);
    else
      cuda::thread_maximum<1>(s, top);
    // Where a part is -inf, exponentials are infinite or NaN, and the check takes all scores.
    if (T::kGrouped && !part)
      cuda::start_rows<true>(top, rows, correction, p.scale_log2);
    else
      cuda::start_rows<false>(top, rows, correction, p.scale_log2);
    const cuda::Sums here = exponentiate<true>();
    keep_reference();
    return here;
  }

  /// O of a segment that is complete: to memory, or to the workspace when the tile has other
  /// pieces.
  FOVEA_DEVICE void finish(const cuda::Rows& done, const Task& t, bool piece) {
    if (piece)
      write_partial<kKey>(o, done, p, block, warpgroup);
    else
      store_output<kKey>(o, done, p, t, warpgroup, out_map, shared);
  }

  /// The task after the current one. Read while a product runs, so that nothing of it is on the way
  /// from one tile to the next.
  struct Following {
    const Task* task;
    int begin, end, own, turned;  // row pairs: own tiles, and how many are visited in turns
    bool masked;
  };
  FOVEA_DEVICE Following read_task() {
    cuda::mbarrier_wait(bars + T::kTaskFull + 8 * task_ring.stage, task_ring.phase);
    const Task* task = tasks + task_ring.stage * T::kTasks;
    task_ring.next();
    const int begin = cuda::uniform(task->begin);
    return {task,
            begin,
            cuda::uniform(task->end),
            T::kRowPair ? cuda::uniform(task->own) : 0,
            T::kRowPair ? cuda::uniform(min(task->own, task->other_own)) : 0,
            begin < cuda::uniform(task->partials)};
  }

  FOVEA_DEVICE void run(int who) {
    if (T::kSchedule.turns && warpgroup == 0) cuda::named_arrive<1>(256);  // the first turn is free
    const Following first = read_task();
    const Task* task = first.task;
    int begin = first.begin, end = first.end, own = first.own, turned = first.turned;
    if (begin == end) return;
    find_k(own == 0);
    wait_q();
    wait_k();
    cuda::pin(s);
    cuda::wgmma_fence();
    issue_qk();
    cuda::wgmma_commit();
    Following next = read_task();
    cuda::wgmma_wait<0>();
    cuda::pin(s);
    free_k();
    find_v(own == 0);
    free_q(end - begin == 1);
    if (first.masked) hide<kKey>(s, p, *task, begin, lane);
    float top[2];
    cuda::thread_maximum<1>(s, top);
    cuda::start_rows<T::kGrouped>(top, rows, correction, p.scale_log2);
    cuda::Sums opening;
    cuda::exponentials<0, T::kScores>(s, opening, correction, p.scale_log2);
    keep_reference();
    cuda::pack<Type>(s, probabilities);
    bool check = false;
    if (T::kGrouped && first.masked) guard_values(*task, begin);

    for (;;) {
      // Here and not at the end of open_tile, where this branch would cost R2UR in the main loop.
      if constexpr (kPartialReference) {
        if (__any_sync(~0u, check && outgrown(opening)))
          raise_reference<true>(opening, *task, begin);
        free_q(check && end - begin == 1);
      }
      rows.add(opening);
      int i = begin + 1;
      if constexpr (T::kMaskAnywhere) {
        const int partials = cuda::uniform(min(task->partials, end));
#pragma unroll 1
        for (; i < partials; i++) step<true>(*task, i, i == end - 1);
        keep_reference();
      }
      // With a single query buffer the last block takes its maximum: Q is free before its softmax.
      const int against = T::kQStages > 1 ? end : end - 1;
      if constexpr (T::kRowPair) {
        const int own_end = min(begin + own, against);
#pragma unroll 1
        for (; i < own_end; i++) step_against_reference(*task, i, i == end - 1, false, i < turned);
      }
#pragma unroll 1
      for (; i < against; i++) step_against_reference(*task, i, i == end - 1);
      if (T::kQStages == 1 && i < end)
        step<false>(*task, i, true, !T::kRowPair || i >= own,
                    !T::kRowPair || i >= own || i < turned);
      if (next.begin == next.end) break;
      // The same step across a tile boundary.
      const Task* const closed_task = task;
      const bool closed_is_piece = T::kSplit && begin != 0;
      const bool masked = next.masked;
      q_ring.next();
      if constexpr (T::kQStages > 1)
        q_descriptor = Tile::descriptor_low(
            shared + (q_ring.stage * T::kWarpgroups + warpgroup) * T::kQBytes, 16);
      task = next.task;
      begin = next.begin;
      end = next.end;
      own = next.own;
      turned = next.turned;
      find_k(own == 0);
      wait_q();
      wait_k();
      issue_both();
      next = read_task();
      wait_scores();
      const cuda::Rows closed_rows = rows;
      check = kPartialReference && !masked;
      free_q(!check && end - begin == 1);
      opening = open_tile(*task, begin, masked);
      find_v(own == 0);
      finish(closed_rows, *closed_task, closed_is_piece);
      accumulate = 0;
      cuda::mbarrier_arrive(bars + T::kTaskEmpty +
                            8 * (static_cast<uint32_t>(closed_task - tasks) / T::kTasks));
      if (T::kGrouped && masked) guard_values(*task, begin);
    }

    wait_v();
    cuda::pin(o);
    cuda::pin(probabilities);
    cuda::wgmma_fence();
    issue_pv();
    cuda::wgmma_commit();
    const bool piece = T::kSplit && begin != 0;
    if constexpr (T::kSplit) {
      const int blocks = piece ? end : task->count;
      int other = who + 1;
      const auto await = [&] {
        return await_partial<kKey>(p, other * T::kCluster + static_cast<int>(rank), warpgroup);
      };
      const auto merge = [&](const Partial& part, const auto& value) {
        merge_partial<kKey>(o, rows, p, part, warpgroup, value);
        other++;
        end = piece_begin(other, task->units, task->pieces) - task->unit;
      };
      if (T::kScores >= T::kOutputs && end < blocks) {  // S is free: read while the product runs
        const Partial part = await();
#pragma unroll
        for (int n = 0; n < T::kOutputs; n++) s[n % T::kScores] = __ldcg(part.from + n * 128);
        cuda::wgmma_wait<0>();
        cuda::pin(o);
        merge(part, [&](int n) { return s[n % T::kScores]; });
      }
      cuda::wgmma_wait<0>();
      cuda::pin(o);
      while (end < blocks) {
        const Partial part = await();
        merge(part, [&](int n) { return __ldcg(part.from + n * 128); });
      }
    } else {
      cuda::wgmma_wait<0>();
      cuda::pin(o);
    }
    free_v();
    finish(rows, *task, piece);
  }
};

}  // namespace fovea::flash_sm90
