// The register tile both products are made of, and the arithmetic of its elements.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/params.hpp"
#include "src/simd/quad.hpp"

namespace fovea::cpu_flash {

// float32 products; every dtype is widened when it is packed.
template <class V>
struct F32Products {
  using Vec = V;
  using Float = typename V::Float;
  static constexpr int kGroup = 1;
  static constexpr FloatType kProducts = FloatType::f32;
  static FOVEA_INLINE Float multiply_add(Float a, Float b, Float c) { return V::fma(a, b, c); }
};

// bfloat16 products of pairs, summed in float32.
template <class V>
struct Bf16Products {
  using Vec = V;
  using Float = typename V::Float;
  static constexpr int kGroup = 2;
  static constexpr FloatType kProducts = FloatType::bf16;
  static FOVEA_INLINE Float multiply_add(Float a, Float b, Float c) { return V::dot2(a, b, c); }
};

// acc[i][r] += sum over j < n of strip[j][i] * panel[j][r]: a strip is kTileRows broadcast words
// per step, a panel is NR vectors of queries per step.
template <class P, int NR>
FOVEA_INLINE void tile_multiply(typename P::Float (&acc)[P::Vec::kTileRows][NR], const float* strip,
                                const float* panel, int64_t n) {
  using V = typename P::Vec;
  constexpr int kRows = V::kTileRows;
  for (int64_t j = 0; j < n; ++j) {
    typename P::Float b[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) b[r] = V::load(panel + r * V::kLanes);
    FOVEA_UNROLL for (int i = 0; i < kRows; ++i) {
      const typename P::Float a = V::set(strip[i]);
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) { acc[i][r] = P::multiply_add(a, b[r], acc[i][r]); }
    }
    strip += kRows;
    panel += NR * V::kLanes;
  }
}

}  // namespace fovea::cpu_flash
