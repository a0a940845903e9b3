// From a problem to a selection on the device.
#pragma once

#include <optional>

#include "fovea/backend.hpp"
#include "fovea/problem.hpp"
#include "fovea/sparse.hpp"
#include "src/backends/block_topk_sm90/select.hpp"

namespace fovea::backends {

// Sizes, strides and options of a problem that the kernels of flash_sm90 take; no pointers.
block_topk_sm90::Call make_selection(const Problem& problem, const BlockTopk& options);

// What keeps the sizes out of kernels that count cells in 31 bits.
std::optional<Reason> selection_refusal(const Problem& problem);

}  // namespace fovea::backends
