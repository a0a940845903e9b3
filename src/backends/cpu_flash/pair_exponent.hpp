// Exponents of weights for products of pairs: a score, its scale, a term and the row's maximum.
#pragma once

#include "src/backends/cpu_flash/elements.hpp"

namespace fovea::cpu_flash {

// Rounded once, a score is off its own rounded maximum by half a unit in the last place, which is
// nothing while maxima stay below this and no weight above.
inline constexpr float kRoundedOnce = 16777216.f;

template <class V>
FOVEA_INLINE typename V::Mask rounds_once(typename V::Float max) {
  return V::less(V::max(max, V::neg(max)), V::set(kRoundedOnce));
}

// A term of -infinity hides its score, whatever that is.
template <class V>
FOVEA_INLINE typename V::Float with_term(typename V::Float score, typename V::Float term) {
  const typename V::Float hidden = V::set(-kInfinity);
  return V::select(V::equal(term, hidden), hidden, V::add(score, term));
}

// Rounded twice with a term, or where the maximum is beyond kRoundedOnce. Each lane decides for
// itself, so that no row depends on its neighbours.
template <class V>
FOVEA_INLINE typename V::Float careful_exponent(typename V::Float score, typename V::Float factor,
                                                typename V::Float term, typename V::Float max) {
  const typename V::Float once = V::fma(score, factor, V::neg(max));
  const typename V::Float twice = V::sub(with_term<V>(V::mul(score, factor), term), max);
  return V::select(rounds_once<V>(max), V::select(V::equal(term, V::set(0.f)), once, twice), twice);
}

}  // namespace fovea::cpu_flash
