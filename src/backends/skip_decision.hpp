// What the skip_softmax of a configuration entry comes to in one call.
#pragma once

#include <optional>

#include "fovea/calibration.hpp"
#include "fovea/config.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"

namespace fovea::backends {

// Nothing for an entry without the block. The threshold is that of the longest document.
std::optional<SkipDecision> skip_decision(const AttentionSpec* spec, const Problem& problem,
                                          const ExecutionContext& context) noexcept;

// The timestep of a call as plans and decisions depend on it: 0 where the gate of the entry is
// open, 1 where it is closed, nothing where there is none or nobody has said.
std::optional<double> gate_side(const AttentionSpec* spec, std::optional<double> timestep) noexcept;

}  // namespace fovea::backends
