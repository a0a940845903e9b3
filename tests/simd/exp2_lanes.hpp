// exp2_nonpositive of one instruction set over an array, so that the test itself needs no special
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

template <class V>
void exp2_array(const float* x, float* y, int64_t count) {
  alignas(64) float in[V::kLanes], out[V::kLanes];
  for (int64_t i = 0; i < count; i += V::kLanes) {
    for (int64_t k = 0; k < V::kLanes; ++k) in[k] = i + k < count ? x[i + k] : 0.f;
    V::store(out, exp2_nonpositive<V>(V::load(in)));
    for (int64_t k = 0; k < V::kLanes && i + k < count; ++k) y[i + k] = out[k];
  }
}

}  // namespace fovea::simd::testing
