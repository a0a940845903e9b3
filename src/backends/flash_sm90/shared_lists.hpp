// Block lists arranged for Source::shared_list. Pure host code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fovea::flash_sm90 {

/// Lists of 128 x 128 blocks as BlockMask keeps them: counts [planes, rows], indices
/// [planes, rows, most], ascending; a plane is a batch item and head that have lists of their own.
struct BlockLists {
  std::span<const std::int32_t> counts, indices;
  std::int64_t rows = 0, most = 0;
};

/// The lists of rows 2 i and 2 i + 1 of a plane, for the two thread blocks of a cluster.
struct SharedLists {
  std::int64_t pairs = 0;  // of one plane: rows / 2, rounded up
  /// [planes, pairs, 4]: coupled steps, blocks of the first and of the second row, 0. An odd last
  /// row has an empty one beside it.
  std::vector<std::int32_t> heads;
  /// [planes, 2 * pairs, most], in visiting order: 2 * block, and 1 more where the step loads the
  /// same block for both rows.
  std::vector<std::int32_t> entries;
};

/// What sharing would do to all pairs of rows, as shares of the blocks listed.
struct Overlap {
  double common = 0;   // blocks that the other row of the pair lists too
  double waiting = 0;  // steps in which a row has nothing left and waits for the other one
};
Overlap overlap_of(const BlockLists& lists);

/// Every row keeps its blocks. The first `coupled` steps, at least two, are taken together; those
/// with a common block load it once. `partial_block`: the block that holds the end of the keys, or
/// -1 where that is a block's end; a row that lists it visits it first.
SharedLists share_lists(const BlockLists& lists, std::int32_t partial_block);

}  // namespace fovea::flash_sm90
