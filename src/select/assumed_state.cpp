#include "src/select/assumed_state.hpp"

#include "src/sparse/pattern.hpp"

namespace fovea {

bool assume_sparse_state(const AttentionSpec* spec, int64_t frames, int64_t tokens_per_frame,
                         Problem& problem, ExecutionContext& context) {
  if (spec == nullptr || problem.sparse) return false;
  if (spec->block_sparse) context.sparse_state = true;
  const bool known = frames > 0;
  const sparse::Video video =
      known ? sparse::Video{frames, tokens_per_frame} : sparse::Video{1, problem.seq_q};
  problem.sparse = sparse::video_pattern(*spec, video);
  if (!problem.sparse) return false;
  context.sparse_state = true;
  return !known;
}

}  // namespace fovea
