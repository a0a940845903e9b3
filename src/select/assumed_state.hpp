// A sparse layer that is judged before a call brings its state along.
#pragma once

#include "fovea/config.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// Makes the question one with a sparse state: the pattern of the spec on a video of `frames` frames
// and what else is text; 0: not known, one frame stands for any. Does nothing for a spec without a
// schedule or a problem with a pattern. True when the density of the answer means nothing, since
// the video is not known.
bool assume_sparse_state(const AttentionSpec* spec, int64_t frames, int64_t tokens_per_frame,
                         Problem& problem, ExecutionContext& context);

}  // namespace fovea
