// Whether a result agrees with the oracle within the numeric contract.
#pragma once

#include "fovea/backend.hpp"
#include "fovea/problem.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/compare.hpp"
#include "src/core/tolerance.hpp"

namespace fovea::backends::reference {

struct Agreement {
  Comparison out;
  Comparison lse;  // empty unless the problem asks for it
  Tolerance tolerance;
  int64_t rows_left_out = 0;  // biases below -2^20: only meaningful in closed form
  bool pass = false;
};

// Compares tensors.out and tensors.lse, which a backend wrote for `problem`, with the oracle's
// answer for the same inputs.
Agreement compare_to_oracle(const Problem& problem, const AttentionTensors& tensors,
                            const Oracle& oracle, DataKind data);

}  // namespace fovea::backends::reference
