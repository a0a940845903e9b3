// The exponentials of one instruction set over an array, so that the test itself needs no special
// flags.
#pragma once

#include <cstdint>

#include "src/simd/exp2.hpp"

namespace fovea::simd::testing {

using Exp2Array = void (*)(const float* x, float* y, int64_t count);

// Null where this build lacks the instruction set.
Exp2Array exp2_generic();
Exp2Array exp2_avx2();
Exp2Array exp2_avx512();
Exp2Array exp2_rough_avx512();

template <class V, bool kRough = false>
void exp2_array(const float* x, float* y, int64_t count) {
  alignas(64) float in[V::kLanes], out[V::kLanes];
  for (int64_t i = 0; i < count; i += V::kLanes) {
    for (int64_t k = 0; k < V::kLanes; ++k) in[k] = i + k < count ? x[i + k] : 0.f;
    typename V::Float one[1] = {V::load(in)};
    if constexpr (kRough) {
      exp2_rough<V>(one);
    } else {
      exp2_nonpositive<V>(one);
    }
    V::store(out, one[0]);
    for (int64_t k = 0; k < V::kLanes && i + k < count; ++k) y[i + k] = out[k];
  }
}

}  // namespace fovea::simd::testing
