// Calls of problems that state a sparse pattern: sparse=radial(frames=21,decay=0.2) and the like.
#pragma once

#include <memory>
#include <optional>

#include "fovea/attention.hpp"
#include "fovea/sparse.hpp"

namespace fovea::validation {

// What makes a layer run a pattern. The configuration names the pattern's own backend where it
// names none, and takes the pattern's options; its schedule is left out, since one call is asked
// for.
struct SparseCall {
  AttentionConfig config;
  std::optional<SparseAttentionState> state;
  std::shared_ptr<const BlockMask> given;  // passed with the call
  std::shared_ptr<const BlockMask> mask;   // the blocks that are read
};

// `problem.sparse` is set. `tensors` give q and k, from which blocks may be chosen; they lie in
// host memory. Errors: invalid_argument, of the pattern; invalid_config.
Result<SparseCall> make_sparse_call(const Problem& problem, const AttentionConfig& config,
                                    const LayerOptions& layer, const AttentionTensors& tensors,
                                    Executor& executor);

}  // namespace fovea::validation
