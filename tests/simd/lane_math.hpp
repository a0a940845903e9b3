// The exponentials and the logarithm of one instruction set over arrays, so that the tests
// themselves need no special flags.
#pragma once

#include <cstdint>

#include "src/simd/cpu_features.hpp"
#include "src/simd/exp2.hpp"
#include "src/simd/log.hpp"

namespace fovea::simd::testing {

using ArrayFunction = void (*)(const float* x, float* y, int64_t count);

// Null where this build lacks the instruction set.
struct LaneMath {
  Isa isa = Isa::generic;
  ArrayFunction exp2 = nullptr;
  ArrayFunction log = nullptr;
  ArrayFunction exp2_rough = nullptr;  // where the hardware scales
};

LaneMath lane_math_generic();
LaneMath lane_math_avx2();
LaneMath lane_math_avx512();
LaneMath lane_math_neon();

// Those that this machine can run.
struct LaneMathList {
  LaneMath items[4];
  int count = 0;

  const LaneMath* begin() const { return items; }
  const LaneMath* end() const { return items + count; }
};
LaneMathList runnable_lane_math();

struct Exp2 {
  template <class V>
  static FOVEA_INLINE typename V::Float of(typename V::Float x) {
    return exp2_nonpositive<V>(x);
  }
};

struct Exp2Rough {
  template <class V>
  static FOVEA_INLINE typename V::Float of(typename V::Float x) {
    typename V::Float one[1] = {x};
    exp2_rough<V>(one);
    return one[0];
  }
};

struct Log {
  template <class V>
  static FOVEA_INLINE typename V::Float of(typename V::Float x) {
    return log_positive<V>(x);
  }
};

template <class V, class Function>
void over_array(const float* x, float* y, int64_t count) {
  alignas(64) float in[V::kLanes], out[V::kLanes];
  for (int64_t i = 0; i < count; i += V::kLanes) {
    for (int64_t k = 0; k < V::kLanes; ++k) in[k] = i + k < count ? x[i + k] : 0.f;
    V::store(out, Function::template of<V>(V::load(in)));
    for (int64_t k = 0; k < V::kLanes && i + k < count; ++k) y[i + k] = out[k];
  }
}

template <class V>
LaneMath lane_math(Isa isa) {
  LaneMath math{isa, over_array<V, Exp2>, over_array<V, Log>};
  if constexpr (V::kHasScale) math.exp2_rough = over_array<V, Exp2Rough>;
  return math;
}

}  // namespace fovea::simd::testing
