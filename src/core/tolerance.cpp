#include "src/core/tolerance.hpp"

namespace fovea {
namespace {

// u is the unit roundoff (half a unit in the last place, relative): 2^-24 for f32, 2^-11 for f16,
// 2^-9 for bf16. A rounding error is at most u; over many values its mean square is about 0.43 u
// (uniform within the unit, significands spread logarithmically).
//
// f32. The score, its exponential and the two-level sums each lose a few u: the dot product of 512
// terms about sqrt(512) u / 2 of a score near 1, a block of 256 keys and its 300 blocks sqrt(256) u
// / 2 + sqrt(300) u / 2. Together below 33 u = 2e-6. One running sum over more than about 8,000
// keys does not stay below it.
constexpr double kF32Out = 2e-6;
// An absolute error: log of a sum up to e^16 is at most 16, whose unit is 2^-20; ten times that.
constexpr double kF32Lse = 1e-5;

// f16. P is rounded to 11 bits for P.V and O to 11 bits: u + u = 9.8e-4.
constexpr double kF16Out = 1e-3;

// bf16 with a 16-bit output: P and O are rounded to 8 bits. Where values do not cancel, O costs at
// most u = 2e-3 and P at most half of that after averaging: 1.5 u = 3e-3. On N(0,1) the values of a
// row cancel to their random sum while short rows keep P's full error: 3 u = 6e-3.
constexpr double kBf16Random = 6e-3;
constexpr double kBf16Structured = 3e-3;
// bf16 with f32 output: only P is rounded, 0.43 u = 8.4e-4 in the mean square.
constexpr double kBf16StructuredF32Out = 1e-3;

// 16-bit inputs multiply exactly in f32; the LSE keeps f32 accuracy, but kernels may sum P after
// rounding it to 16 bits: mean error u / sqrt(keys) of the sum, below 1e-3 from 4 keys on.
constexpr double kHalfLse = 1e-3;

// Beyond M = 16 the spacing of float32 near a score passes 2^-20: the score, its product with
// log2(e) and the difference to the row's maximum lose up to half a unit each, 4 x 2^-24 x M.
constexpr double kMagnitudeFree = 16;
constexpr double kPerMagnitude = 0x1p-22;

}  // namespace

Tolerance exact_tolerance(DType dtype, DType out_dtype, DataKind data, double magnitude) noexcept {
  Tolerance t{kF32Out, kF32Lse};
  if (dtype == kF16) t = {kF16Out, kHalfLse};
  if (dtype == kBF16) {
    t = {kBf16Random, kHalfLse};
    if (data == DataKind::structured)
      t.rel_l2 = out_dtype == kF32 ? kBf16StructuredF32Out : kBf16Structured;
  }
  if (magnitude > kMagnitudeFree) {
    t.rel_l2 += kPerMagnitude * magnitude;
    t.lse += kPerMagnitude * magnitude;
  }
  return t;
}

bool within(const Comparison& comparison, double rel_l2) noexcept {
  return comparison.nonfinite_mismatches == 0 && comparison.rel_l2 <= rel_l2;
}

}  // namespace fovea
