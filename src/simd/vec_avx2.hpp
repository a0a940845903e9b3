// Vector operations for AVX2 + FMA + F16C (x86-64-v3).
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "src/simd/quad.hpp"

namespace fovea::simd::avx2 {

struct Vec {
  using Float = __m256;
  using Mask = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 4;
  static constexpr int kTileVectors = 3;
  static constexpr bool kHasScale = false;
  static constexpr bool kHasBf16Dot = false;

  static FOVEA_INLINE Float load(const float* p) { return _mm256_load_ps(p); }
  static FOVEA_INLINE void store(float* p, Float x) { _mm256_store_ps(p, x); }
  static FOVEA_INLINE Float set(float x) { return _mm256_set1_ps(x); }
  static FOVEA_INLINE Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static FOVEA_INLINE Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static FOVEA_INLINE Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static FOVEA_INLINE Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  // The second operand where either is NaN.
  static FOVEA_INLINE Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static FOVEA_INLINE Mask equal(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static FOVEA_INLINE Mask less(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static FOVEA_INLINE Float select(Mask m, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, m);
  }
  static FOVEA_INLINE Float exponent_from_low_bits(Float x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
  }

  // One vector from its quads, and transposing 4 x 4 in each of them.
  static FOVEA_INLINE Float join(const Quad (&x)[2]) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256((__m128)x[0]), (__m128)x[1], 1);
  }
  static FOVEA_INLINE void split(Float x, Quad (&quads)[2]) {
    quads[0] = (Quad)_mm256_castps256_ps128(x);
    quads[1] = (Quad)_mm256_extractf128_ps(x, 1);
  }
  static FOVEA_INLINE void transpose_quads(Float& a, Float& b, Float& c, Float& d) {
    const Float ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
    const Float cd_low = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
    a = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
    b = _mm256_shuffle_ps(ab_low, cd_low, 0xee);
    c = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
    d = _mm256_shuffle_ps(ab_high, cd_high, 0xee);
  }
  // The high half first.
  static FOVEA_INLINE void store_halves(float* low, float* high, Float x) {
    _mm_storeu_ps(high, _mm256_extractf128_ps(x, 1));
    _mm_storeu_ps(low, _mm256_castps256_ps128(x));
  }

  static FOVEA_INLINE Quad quad_from_f16(const void* p) {
    return (Quad)_mm_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  // Rounds both to half precision: even in the low halves of the words, odd in the high ones.
  static FOVEA_INLINE Float pair_f16(Float even, Float odd) {
    const __m256i low = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(even, _MM_FROUND_TO_NEAREST_INT));
    const __m256i high = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT));
    return _mm256_castsi256_ps(_mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
  }
};

}  // namespace fovea::simd::avx2

#endif
