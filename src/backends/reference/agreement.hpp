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
  int64_t rows = 0;           // that were compared
  int64_t rows_left_out = 0;  // biases below -2^20: only meaningful in closed form
  bool pass = false;
};

// Compares tensors.out and tensors.lse, which a backend wrote for `problem`, with the oracle's
// answer for the same inputs.
Agreement compare_to_oracle(const Problem& problem, const AttentionTensors& tensors,
                            const Oracle& oracle, DataKind data);

// The same without an oracle at hand. Of problems above `flops` only rows that cost about as much
// are computed, in groups spread evenly over items, heads and positions, the last rows included.
// Errors: as compute_oracle.
Result<Agreement> agree_with_oracle(const Problem& problem, const AttentionTensors& tensors,
                                    Executor& executor, DataKind data, double flops,
                                    const BlockMask* mask = nullptr);

}  // namespace fovea::backends::reference
