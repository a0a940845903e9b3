// Sparse patterns as the text of a Problem, and the masks that they stand for:
//   radial(frames=21,tokens=1560,block=128,decay=1,model=wan,rule=radial)
//   local(frames=21,tokens=1560,block=128,window=6[,grid=6x10])
//   random(density=0.25,q=128,kv=128,batch=1,heads=1): blocks drawn from the problem's seed
//   topk(sparsity=0.8,block=128,prefix=0): chosen from q and k during the call
//   mask(q=128,kv=128,most=9,batch=1,heads=1): lists that come with the call
#pragma once

#include <memory>
#include <variant>

#include "fovea/problem.hpp"
#include "fovea/sparse.hpp"
#include "src/core/list_shape.hpp"

namespace fovea::sparse {

// Every block is on with probability `density`, different for each batch item and head.
struct RandomPattern {
  BlockMaskShape shape;
  double density = 0.25;
  uint64_t seed = 0;
};

using Pattern =
    std::variant<RadialPattern, LocalWindowPattern, RandomPattern, BlockTopk, ListShape>;

// The pattern of a problem that has one, fitted to its lengths. Error invalid_argument: an unknown
// name or parameter, a value out of range, lengths that do not fit.
Result<Pattern> read_pattern(const Problem& problem);

SparsePattern to_pattern(const RadialPattern& pattern);
SparsePattern to_pattern(const LocalWindowPattern& pattern);

// The pattern of a spec of RADIAL_ATTN or LOCAL_SPARSE_ATTN on a video; text is what a sequence has
// beyond it. Nothing for specs without a video pattern.
struct Video {
  int64_t frames = 1;
  int64_t tokens_per_frame = 1;
  std::optional<BlockWindowGrid> grid = {};
  VideoModel model = VideoModel::wan;
};
std::optional<SparsePattern> video_pattern(const AttentionSpec& spec, const Video& video);

// The mask of a pattern that is known before the call; null for the others. Errors: as build_mask.
Result<std::shared_ptr<const BlockMask>> planned_mask(const Pattern& pattern);

}  // namespace fovea::sparse
