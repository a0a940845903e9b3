// Vector operations for AVX-512 (x86-64-v4), with the bfloat16 dot product where compiled for it.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined operands inside its own intrinsics for a fault.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include "src/simd/quad.hpp"

namespace fovea::simd {

// `Tag` keeps the symbols of the plain and the bf16 build apart.
template <class Tag>
struct Avx512Vec {
  using Float = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 8;
  static constexpr int kTileVectors = 2;
  static constexpr bool kHasScale = true;

  static FOVEA_INLINE Float load(const float* p) { return _mm512_load_ps(p); }
  static FOVEA_INLINE void store(float* p, Float x) { _mm512_store_ps(p, x); }
  static FOVEA_INLINE Float set(float x) { return _mm512_set1_ps(x); }
  static FOVEA_INLINE Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static FOVEA_INLINE Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static FOVEA_INLINE Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static FOVEA_INLINE Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static FOVEA_INLINE Float neg(Float a) { return -a; }
  // The second operand where either is NaN.
  static FOVEA_INLINE Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static FOVEA_INLINE Mask equal(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static FOVEA_INLINE Mask less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static FOVEA_INLINE bool all(Mask m) { return m == 0xffff; }
  static FOVEA_INLINE Float select(Mask m, Float yes, Float no) {
    return _mm512_mask_blend_ps(m, no, yes);
  }
  // x - floor(x), and p * 2^floor(x); -inf gives 0 and NaN stays NaN.
  static FOVEA_INLINE Float fraction(Float x) { return _mm512_reduce_ps(x, 0x09); }
  static FOVEA_INLINE Float scale(Float p, Float x) { return _mm512_scalef_ps(p, x); }

  // One vector from its quads, and transposing 4 x 4 in each of them.
  static FOVEA_INLINE Float join(const Quad (&x)[4]) {
    Float y = _mm512_castps128_ps512((__m128)x[0]);
    y = _mm512_insertf32x4(y, (__m128)x[1], 1);
    y = _mm512_insertf32x4(y, (__m128)x[2], 2);
    return _mm512_insertf32x4(y, (__m128)x[3], 3);
  }
  static FOVEA_INLINE void split(Float x, Quad (&quads)[4]) {
    quads[0] = (Quad)_mm512_castps512_ps128(x);
    quads[1] = (Quad)_mm512_extractf32x4_ps(x, 1);
    quads[2] = (Quad)_mm512_extractf32x4_ps(x, 2);
    quads[3] = (Quad)_mm512_extractf32x4_ps(x, 3);
  }
  static FOVEA_INLINE void transpose_quads(Float& a, Float& b, Float& c, Float& d) {
    const Float ab_low = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b);
    const Float cd_low = _mm512_unpacklo_ps(c, d), cd_high = _mm512_unpackhi_ps(c, d);
    a = _mm512_shuffle_ps(ab_low, cd_low, 0x44);
    b = _mm512_shuffle_ps(ab_low, cd_low, 0xee);
    c = _mm512_shuffle_ps(ab_high, cd_high, 0x44);
    d = _mm512_shuffle_ps(ab_high, cd_high, 0xee);
  }
  // The high half first.
  static FOVEA_INLINE void store_halves(float* low, float* high, Float x) {
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x, 1));
    _mm256_storeu_ps(low, _mm512_castps512_ps256(x));
  }

  static FOVEA_INLINE Quad quad_from_f16(const void* p) {
    return (Quad)_mm_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  // Rounds both to half precision: even in the low halves of the words, odd in the high ones.
  static FOVEA_INLINE Float pair_f16(Float even, Float odd) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(even, _MM_FROUND_TO_NEAREST_INT));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
};

namespace avx512 {
struct Vec : Avx512Vec<Vec> {
  static constexpr bool kHasBf16Dot = false;
};
}  // namespace avx512

#if defined(__AVX512BF16__)
template <class Tag>
struct Avx512Bf16Vec : Avx512Vec<Tag> {
  using Float = typename Avx512Vec<Tag>::Float;
  static constexpr bool kHasBf16Dot = true;
  alignas(64) static constexpr uint16_t kInterleave[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

  // c + a.lo * b.lo + a.hi * b.hi, the pairs being bfloat16 halves of each 32-bit lane.
  static FOVEA_INLINE Float dot2(Float a, Float b, Float c) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
  // Rounds both to bfloat16 and interleaves them: even in the low halves, odd in the high ones.
  static FOVEA_INLINE Float pair(Float even, Float odd) {
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), halves));
  }
  // pair() takes subnormal numbers for zeros.
  static FOVEA_INLINE bool any_subnormal(Float a, Float b) {
    constexpr int kSubnormal = 0x20;
    return (_mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal)) != 0;
  }
  // Elements of two rows, those of `even` in the low halves.
  static FOVEA_INLINE Float interleave(const uint16_t* even, const uint16_t* odd) {
    const auto widened = [](const uint16_t* p) __attribute__((always_inline)) {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    };
    return _mm512_castsi512_ps(_mm512_or_si512(widened(even), _mm512_slli_epi32(widened(odd), 16)));
  }
  // Half by half the larger magnitude of `a`, which has no signs, and `b`.
  static FOVEA_INLINE Float larger_halves(Float a, Float b) {
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(b), _mm512_set1_epi16(0x7fff));
    return _mm512_castsi512_ps(_mm512_max_epu16(_mm512_castps_si512(a), magnitude));
  }
  static FOVEA_INLINE bool nonfinite_half(Float magnitudes) {
    return _mm512_cmpge_epu16_mask(_mm512_castps_si512(magnitudes), _mm512_set1_epi16(0x7f80)) != 0;
  }
  // The float32 value of the even (low) and odd (high) halves.
  static FOVEA_INLINE Float even_half(Float x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
  }
  static FOVEA_INLINE Float odd_half(Float x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

namespace avx512bf16 {
struct Vec : Avx512Bf16Vec<Vec> {};
}  // namespace avx512bf16
#endif

}  // namespace fovea::simd

#endif
