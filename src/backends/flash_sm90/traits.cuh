// Compile-time numbers of one instance: tile shapes, registers per thread, shared-memory map.
#pragma once

#include <algorithm>
#include <type_traits>

#include "src/backends/flash_sm90/instances.hpp"
#include "src/backends/flash_sm90/params.hpp"
#include "src/cuda/softmax.cuh"
#include "src/cuda/tile.cuh"

namespace fovea::flash_sm90 {

inline constexpr int kTaskSlots = 3;  // the current task, the next, and the one after it
/// Entries of a list beyond these many words of bits are never common, see row_pair.cuh.
inline constexpr int kCommonWords = 64;

/// A segment as producers hand it to consumers: the query tile in coordinates of the tensor maps
/// and the key blocks it visits.
struct alignas(16) Task {
  int begin, end;  // of this segment, in visiting order; equal: no work follows
  int count;       // key blocks of the whole tile
  int m, head, batch;
  int q_start, q_length, kv_start, kv_length;
  int partials;     // visited blocks 0 .. partials - 1 hide keys from some row, the others do not
  int first_block;  // number of visited block 0 where blocks form a range; pairs: blocks listed;
                    // row pairs: blocks of own tiles
  int high_partials,
      low_block;            // band: see block_of; pairs: low_block keys of visited tile 0 exist
  int key_row;              // key bits
  int unit, units, pieces;  // see Walk
  // Row pairs: own tiles of this row and of the other, entries of the list, which are common.
  int own, other_own, entries;
  uint32_t* common_bits;
};

template <Key kKey>
struct Traits {
  static constexpr Schedule kSchedule = schedule(kKey);
  using Type = std::conditional_t<kKey.precision == Precision::bf16, cuda::Bf16, cuda::F16>;
  static constexpr int kHeadDim = kKey.head_dim;
  static constexpr int kBlockKv = kKey.block_kv;
  static constexpr int kWarpgroups = kSchedule.warpgroups;
  static constexpr int kBlockQ = 64 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + kSchedule.producers);
  static constexpr int kKStages = kSchedule.k_stages;
  static constexpr int kVStages = kSchedule.v_stages;
  static constexpr int kQStages = kSchedule.q_stages;
  static constexpr int kCluster = kSchedule.cluster;
  /// Every warpgroup has a row of blocks, a task and buffers of its own, see row_pair.cuh.
  static constexpr bool kRowPair = kKey.source == Source::small;
  static constexpr int kTaskRows = block_q(kKey);
  static constexpr int kTasks = kRowPair ? kWarpgroups : 1;  // of a work item
  static constexpr int kItemTiles =
      kRowPair ? kWarpgroups : kCluster;  // query tiles of a work item
  static constexpr int kKBuffers = kTasks * kKStages, kVBuffers = kTasks * kVStages;
  static constexpr int kStreams = 3 * kTasks;  // of K, V and Q
  /// Arrivals that free a task: every thread that reads it.
  static constexpr int kTaskReaders = 128 * kWarpgroups + kStreams;
  static constexpr int kTaskWriters = kRowPair ? 32 : 1;
  /// Arrivals that free a K or V buffer, at each barrier.
  static constexpr int kReleases = kWarpgroups * kCluster;
  static constexpr cuda::Rescale kRescale =
      kSchedule.rescale_on_growth ? cuda::Rescale::on_growth : cuda::Rescale::always;

  static constexpr bool kDense = kKey.source == Source::dense;
  static constexpr bool kPairs = kKey.source == Source::pairs || kKey.source == Source::small;
  /// A listed block may be two blocks of half the size, see Params::list_halves.
  static constexpr bool kHalved = kKey.source == Source::small || kKey.source == Source::halves;
  static constexpr bool kBand = kKey.mask == Mask::band;
  static constexpr bool kKeyBits = kKey.mask == Mask::key_bits;
  /// Lengths differ between work items, so items are found by walking over groups.
  static constexpr bool kGrouped = kKey.mask != Mask::none || !kDense;
  /// Any block may need masking, not only the first one visited.
  static constexpr bool kMaskAnywhere = kBand || kKeyBits;
  /// Within a tile probabilities are taken against a reference, the maximum of its first blocks (or
  /// of a part of the first one, see kReferenceStep), and may exceed 1. Only when a thread's sum
  /// over a block exceeds this does the reference move. float32 and bf16 keep their precision at
  /// any size; f16 ends at 65504.
  static constexpr float kGrowthLimit = kKey.precision == Precision::bf16 ? 65536.f : 4096.f;
  /// The incomplete last wave is cut along the keys.
  static constexpr bool kSplit = kDense && !kBand;

  // Registers per consumer thread.
  static constexpr int kScores = kBlockKv / 2;
  static constexpr int kOutputs = kHeadDim / 2;
  static constexpr int kReferenceStep = kSchedule.reference_step;
  static constexpr int early_scores(int eighths) { return (kScores * eighths / 8) & ~3; }
  static constexpr int kEarlyScores = early_scores(kSchedule.early_exponentials);
  static constexpr int kFirstScores =
      early_scores(std::min(kSchedule.first_exponentials, kSchedule.early_exponentials));

  using Tile = cuda::Tile;
  static constexpr int kPanels = (kHeadDim + Tile::kColumns - 1) / Tile::kColumns;
  /// Multicast shares of a K or V tile: whole panels where they divide evenly, else rows of every
  /// panel.
  static constexpr bool kSharePanels = kPanels % kCluster == 0;
  static constexpr int kLoadPanels = kPairs ? 1 : kSharePanels ? kPanels / kCluster : kPanels;
  static constexpr int kLoadRows = kPairs         ? kBlockKv / 2
                                   : kSharePanels ? kBlockKv
                                                  : kBlockKv / kCluster;
  static_assert(kBlockKv % 16 == 0 && kLoadRows % 8 == 0 && kBlockKv < 32 * kKeyWords);

  // Shared memory: Q (one 64-row tile per warpgroup and buffer), K ring, V ring, O staging (16 rows
  // per warp), barriers, tasks. All tiles start at multiples of 1024 bytes.
  static constexpr uint32_t kQPanelBytes = Tile::panel_bytes(64);
  static constexpr uint32_t kQBytes = kPanels * kQPanelBytes;
  static constexpr uint32_t kKvPanelBytes = Tile::panel_bytes(kBlockKv);
  static constexpr uint32_t kKvBytes = kPanels * kKvPanelBytes;
  static constexpr uint32_t kOutPanelBytes = Tile::panel_bytes(16);
  static constexpr uint32_t kOutBytes = kPanels * kOutPanelBytes;
  static constexpr uint32_t kKOffset = kQStages * kWarpgroups * kQBytes;
  static constexpr uint32_t kVOffset = kKOffset + kKBuffers * kKvBytes;
  static constexpr uint32_t kOutOffset = kVOffset + kVBuffers * kKvBytes;
  static constexpr uint32_t kBarrierOffset =
      kOutOffset + (kSchedule.staged_output ? kWarpgroups * 4 * kOutBytes : 0);
  static constexpr uint32_t kQFull = 0;
  static constexpr uint32_t kQEmpty = kQFull + 8 * kWarpgroups * kQStages;
  static constexpr uint32_t kKFull = kQEmpty + 8 * kWarpgroups * kQStages;
  static constexpr uint32_t kKEmpty = kKFull + 8 * kTasks * kKBuffers;
  static constexpr uint32_t kVFull = kKEmpty + 8 * kKBuffers;
  static constexpr uint32_t kVEmpty = kVFull + 8 * kTasks * kVBuffers;
  static constexpr uint32_t kTaskFull = kVEmpty + 8 * kVBuffers;
  static constexpr uint32_t kTaskEmpty = kTaskFull + 8 * kTaskSlots;
  static constexpr uint32_t kBarrierBytes = kTaskEmpty + 8 * kTaskSlots;
  static constexpr uint32_t kTaskOffset = (kBarrierOffset + kBarrierBytes + 15) / 16 * 16;
  static constexpr uint32_t kBitsOffset = kTaskOffset + kTaskSlots * kTasks * sizeof(Task);
  static constexpr uint32_t kSharedBytes =
      kBitsOffset + (kRowPair ? kTaskSlots * kTasks * kCommonWords * 4 : 0);
  static_assert(kSharedBytes <= 227 * 1024);

  /// Floats of one warpgroup's partial result: O, maximum[2], sum[2] of every thread.
  static constexpr int kPartialFloats = (kOutputs + 4) * 128;
};

}  // namespace fovea::flash_sm90
