// 2^x for softmax arguments, x <= 0.
//
// Relative error at most kExp2RelativeError for x in [-126, 0]; below that the result is within
// 2^-126 of the true value, exactly 0 for x <= -127 (also -inf), and NaN stays NaN. 2^0 is exactly
// 1: the polynomials are minimax among those with constant term 1.
#pragma once

#include "src/simd/quad.hpp"

namespace fovea::simd {

inline constexpr double kExp2RelativeError = 2e-7;

// In place, step by step for all of them: what one step of `N` vectors takes hides its latency.
template <class V, int N>
FOVEA_INLINE void exp2_nonpositive(typename V::Float (&x)[N]) {
  using Float = typename V::Float;
  Float f[N], p[N];
  const auto horner = [&](float coefficient) __attribute__((always_inline)) {
    FOVEA_UNROLL for (int i = 0; i < N; ++i) p[i] = V::fma(p[i], f[i], V::set(coefficient));
  };
  if constexpr (V::kHasScale) {
    // Degree 5 on [0, 1), scaled by the hardware.
    FOVEA_UNROLL for (int i = 0; i < N; ++i) f[i] = V::fraction(x[i]);
    FOVEA_UNROLL for (int i = 0; i < N; ++i) p[i] = V::set(0.00186713005f);
    horner(0.00901703071f);
    horner(0.0557999127f);
    horner(0.240164444f);
    horner(0.693151295f);
    horner(1.f);
    FOVEA_UNROLL for (int i = 0; i < N; ++i) x[i] = V::scale(p[i], x[i]);
  } else {
    // Degree 5 on [-1/2, 1/2]. Adding 1.5 * 2^23 + 127 rounds x to an integer whose biased
    // exponent ends up in the low bits; at -127 that exponent is 0 and the factor is exactly 0.
    const Float magic = V::set(12582912.f + 127.f);
    FOVEA_UNROLL for (int i = 0; i < N; ++i) {
      x[i] = V::max(V::set(-127.f), x[i]);
      const Float rounded = V::add(x[i], magic);
      f[i] = V::sub(x[i], V::sub(rounded, magic));
      x[i] = V::exponent_from_low_bits(rounded);
      p[i] = V::set(0.00132647273f);
    }
    horner(0.00967151299f);
    horner(0.0555073358f);
    horner(0.240222424f);
    horner(0.693147004f);
    horner(1.f);
    FOVEA_UNROLL for (int i = 0; i < N; ++i) x[i] = V::mul(p[i], x[i]);
  }
}

// For weights that are rounded to bfloat16: of degree 3, relative error at most
// kExp2RoughRelativeError, and for any x that leaves the result finite.
inline constexpr double kExp2RoughRelativeError = 1e-4;

template <class V, int N>
FOVEA_INLINE void exp2_rough(typename V::Float (&x)[N]) {
  static_assert(V::kHasScale);
  using Float = typename V::Float;
  Float f[N], p[N];
  const auto horner = [&](float coefficient) __attribute__((always_inline)) {
    FOVEA_UNROLL for (int i = 0; i < N; ++i) p[i] = V::fma(p[i], f[i], V::set(coefficient));
  };
  FOVEA_UNROLL for (int i = 0; i < N; ++i) f[i] = V::fraction(x[i]);
  FOVEA_UNROLL for (int i = 0; i < N; ++i) p[i] = V::set(0.0770670420f);
  horner(0.227644991f);
  horner(0.695116786f);
  horner(1.f);
  FOVEA_UNROLL for (int i = 0; i < N; ++i) x[i] = V::scale(p[i], x[i]);
}

template <class V>
FOVEA_INLINE typename V::Float exp2_nonpositive(typename V::Float x) {
  typename V::Float one[1] = {x};
  exp2_nonpositive<V>(one);
  return one[0];
}

}  // namespace fovea::simd
