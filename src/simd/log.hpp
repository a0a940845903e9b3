// The natural logarithm of sums of softmax weights.
//
// Error at most kLogError * max(1, |log x|) for positive finite x, subnormal ones included; the
// logarithm of 1 is exactly 0, and NaN stays NaN.
#pragma once

#include "src/simd/quad.hpp"

namespace fovea::simd {

inline constexpr double kLogError = 1.5e-7;

template <class V>
FOVEA_INLINE typename V::Float log_positive(typename V::Float x) {
  using Float = typename V::Float;
  typedef int32_t Int __attribute__((vector_size(4 * V::kLanes)));
  typedef float Real __attribute__((vector_size(4 * V::kLanes)));
  const auto subnormal = V::less(x, V::set(0x1p-126f));
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)); subnormal ones as 2^23 x.
  const Int bits = (Int)V::select(subnormal, V::mul(x, V::set(0x1p23f)), x);
  const Int e = (bits - 0x3f3504f3) >> 23;
  const Real m = (Real)(bits - (e << 23));
  // log m = 2 atanh(s).
  const Real s = (m - 1.f) / (m + 1.f);
  const Float square = (Float)(s * s);
  Float p = V::fma(square, V::set(0.295799494f), V::set(0.3998878f));
  p = V::fma(p, square, V::set(0.666666865f));
  p = V::fma(p, square, V::set(2.f));
  const Float log_m = V::mul(p, (Float)s);
  // The exponent as a float, by way of the bits of 1.5 * 2^23 + e.
  const Float shifted = (Float)((Real)(e + 0x4b400000) - 12582912.f);
  const Float exponent = V::select(subnormal, V::sub(shifted, V::set(23.f)), shifted);
  const Float result = V::fma(exponent, V::set(0.693147182f), log_m);
  return V::select(V::equal(x, x), result, x);
}

}  // namespace fovea::simd
