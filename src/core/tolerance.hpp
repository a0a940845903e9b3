// Every error bound of the numeric contract, with its derivation. No other file states one.
#pragma once

#include "fovea/dtype.hpp"
#include "src/core/compare.hpp"

namespace fovea {

// Bounds of an exact (lossless) path against the float64 oracle on the same rounded inputs.
struct Tolerance {
  double rel_l2 = 0;  // relative L2 error of the output
  double lse = 0;     // largest absolute error of the log-sum-exp
};

// random: q, k, v from N(0,1), where the values of a row cancel; structured: anything smoother.
enum class DataKind : uint8_t { random, structured };

// `magnitude` is M, the largest visible |scale q.k + bias|.
Tolerance exact_tolerance(DType dtype, DType out_dtype, DataKind data, double magnitude) noexcept;

// float32 outputs of another implementation's float32 kernel, both within the f32 bound of the
// truth on well-scaled inputs.
inline constexpr double kParityRelL2 = 2e-6;

// Outer bound of a validation run in bf16, |got - expected| <= x + x * |expected| for every
// element, where other libraries start too: half a unit in the last place of bf16 is 2^-9 = 2e-3 of
// a value, once for P and once for the output, and values reach 4 on N(0,1).
inline constexpr double kValidationBf16 = 1e-2;

// Positions of NaN and infinities agree and the relative L2 error (largest error when the
// reference is all zero) is at most `rel_l2`.
bool within(const Comparison& comparison, double rel_l2) noexcept;

}  // namespace fovea
