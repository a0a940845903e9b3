// Merging answers over disjoint sets of keys by their LSE, in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/core/compare.hpp"
#include "src/core/tolerance.hpp"
#include "tests/contract/harness.hpp"

namespace fovea::contract {

struct Merged {
  bool complete = false;    // all parts ran
  std::vector<double> out;  // [B,Sq,Hq,Dv]
  std::vector<double> lse;  // [B,Hq,Sq]
};

// Weights exp(lse - lse of all); a part that saw nothing (-inf) has weight 0, also when no part saw
// anything.
inline Merged merge(const std::vector<Answer>& parts) {
  Merged merged;
  for (const Answer& part : parts)
    if (!part.ran) return merged;
  merged.complete = true;
  const Problem& p = parts.front().problem;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads_q; ++h)
      for (int64_t i = 0; i < p.seq_q; ++i) {
        double largest = -std::numeric_limits<double>::infinity();
        for (const Answer& part : parts) largest = std::max(largest, part.lse.at(b, h, i));
        double sum = 0;
        for (const Answer& part : parts)
          if (std::isfinite(largest)) sum += std::exp(part.lse.at(b, h, i) - largest);
        merged.lse.push_back(largest + std::log(sum));
      }
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t i = 0; i < p.seq_q; ++i)
      for (int64_t h = 0; h < p.heads_q; ++h) {
        const double all = merged.lse[static_cast<size_t>((b * p.heads_q + h) * p.seq_q + i)];
        for (int64_t d = 0; d < p.dim_v; ++d) {
          double value = 0;
          for (const Answer& part : parts)
            if (std::isfinite(part.lse.at(b, h, i)))
              value += std::exp(part.lse.at(b, h, i) - all) * part.out.at(b, i, h, d);
          merged.out.push_back(value);
        }
      }
  return merged;
}

inline void expect_merged(const Merged& merged, const Answer& whole) {
  if (!merged.complete || !whole.ran) return;
  // Every part and the whole are within the bound of the truth.
  const Tolerance bound =
      exact_tolerance(whole.problem.dtype, whole.problem.out_dtype, DataKind::random, 0);
  const Comparison out = compare(whole.out.view(), merged.out);
  EXPECT_EQ(out.nonfinite_mismatches, 0);
  EXPECT_LE(out.rel_l2, 2 * bound.rel_l2);
  const Comparison lse = compare(whole.lse.view(), merged.lse);
  EXPECT_EQ(lse.nonfinite_mismatches, 0);
  EXPECT_LE(lse.max_abs, 2 * bound.lse);
}

}  // namespace fovea::contract
