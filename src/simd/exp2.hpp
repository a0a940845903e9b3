// 2^x for softmax arguments, x <= 0.
//
// Relative error at most kExp2RelativeError for x in [-126, 0]; below that the result is within
// 2^-126 of the true value, exactly 0 for x <= -127 (also -inf), and NaN stays NaN. 2^0 is exactly
// 1: the polynomials are minimax among those with constant term 1.
#pragma once

#include "src/simd/quad.hpp"

namespace fovea::simd {

inline constexpr double kExp2RelativeError = 2e-7;

template <class V>
FOVEA_INLINE typename V::Float exp2_nonpositive(typename V::Float x) {
  using Float = typename V::Float;
  if constexpr (V::kHasScale) {
    // Degree 5 on [0, 1), scaled by the hardware.
    const Float f = V::fraction(x);
    Float p = V::fma(f, V::set(0.00186713005f), V::set(0.00901703071f));
    p = V::fma(p, f, V::set(0.0557999127f));
    p = V::fma(p, f, V::set(0.240164444f));
    p = V::fma(p, f, V::set(0.693151295f));
    p = V::fma(p, f, V::set(1.f));
    return V::scale(p, x);
  } else {
    // Degree 5 on [-1/2, 1/2]. Adding 1.5 * 2^23 + 127 rounds x to an integer whose biased
    // exponent ends up in the low bits; at -127 that exponent is 0 and the factor is exactly 0.
    const Float magic = V::set(12582912.f + 127.f);
    x = V::max(V::set(-127.f), x);
    const Float rounded = V::add(x, magic);
    const Float f = V::sub(x, V::sub(rounded, magic));
    Float p = V::fma(f, V::set(0.00132647273f), V::set(0.00967151299f));
    p = V::fma(p, f, V::set(0.0555073358f));
    p = V::fma(p, f, V::set(0.240222424f));
    p = V::fma(p, f, V::set(0.693147004f));
    p = V::fma(p, f, V::set(1.f));
    return V::mul(p, V::exponent_from_low_bits(rounded));
  }
}

}  // namespace fovea::simd
