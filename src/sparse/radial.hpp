// The radial rule in integers, and its named constants.
#pragma once

#include <cstdint>

#include "fovea/sparse.hpp"

namespace fovea::sparse {

// Version of the authors' rule. Pairs of frames whose window would be narrower than this many
// tokens are thinned instead; a constant of the rule, not the block size.
inline constexpr int64_t kRadialThinningWidth = 128;
// A column of a block counts as dense when more than a third of a block's rows see it; a block is
// on when more than three fifths of its touched columns are dense.
inline constexpr int64_t kRadialColumnShare = 3;
inline constexpr int64_t kRadialDenseNumerator = 3;
inline constexpr int64_t kRadialDenseDenominator = 5;

// Half-width of the window between positions of query frame i and key frame j: they see each other
// up to that distance. tokens_per_frame: all; -1: the pair is dropped.
int64_t radial_half_width(const RadialPattern& pattern, int64_t query_frame, int64_t key_frame);

}  // namespace fovea::sparse
