// Calls with a handful of scores per head, where packing and a tile of sixteen lanes would cost
// more than the arithmetic.
#pragma once

#include "fovea/executor.hpp"
#include "src/backends/cpu_flash/params.hpp"

namespace fovea::cpu_flash {

// Whether a call is served here: float32 in and out, padded, no diagonal, no additive mask, and
// little to compute.
bool has_few_scores(const Params& params) noexcept;

// Row by row in float64. Bitwise the same for any number of workers.
void attend_few_scores(const Params& params, Executor& executor) noexcept;

}  // namespace fovea::cpu_flash
