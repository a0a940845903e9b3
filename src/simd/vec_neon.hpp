// Vector operations for 64-bit Arm.
#pragma once

#if defined(__aarch64__)

#include <arm_neon.h>

#include "src/simd/quad.hpp"

namespace fovea::simd::neon {

struct Vec {
  using Float = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 8;
  static constexpr int kTileVectors = 2;
  static constexpr bool kHasScale = false;
  static constexpr bool kHasBf16Dot = false;

  static FOVEA_INLINE Float load(const float* p) { return vld1q_f32(p); }
  static FOVEA_INLINE void store(float* p, Float x) { vst1q_f32(p, x); }
  static FOVEA_INLINE Float set(float x) { return vdupq_n_f32(x); }
  static FOVEA_INLINE Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static FOVEA_INLINE Float add(Float a, Float b) { return vaddq_f32(a, b); }
  static FOVEA_INLINE Float sub(Float a, Float b) { return vsubq_f32(a, b); }
  static FOVEA_INLINE Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  // The second operand where either is NaN.
  static FOVEA_INLINE Float max(Float a, Float b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static FOVEA_INLINE Mask equal(Float a, Float b) { return vceqq_f32(a, b); }
  static FOVEA_INLINE Mask less(Float a, Float b) { return vcltq_f32(a, b); }
  static FOVEA_INLINE Float select(Mask m, Float yes, Float no) { return vbslq_f32(m, yes, no); }
  static FOVEA_INLINE Float exponent_from_low_bits(Float x) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(x), 23));
  }

  // One vector from its quads, and transposing 4 x 4 in each of them.
  static FOVEA_INLINE Float join(const Quad (&x)[1]) { return (Float)x[0]; }
  static FOVEA_INLINE void split(Float x, Quad (&quads)[1]) { quads[0] = (Quad)x; }
  static FOVEA_INLINE void transpose_quads(Float& a, Float& b, Float& c, Float& d) {
    Quad w = (Quad)a, x = (Quad)b, y = (Quad)c, z = (Quad)d;
    quad_transpose(w, x, y, z);
    a = (Float)w, b = (Float)x, c = (Float)y, d = (Float)z;
  }

  static FOVEA_INLINE Quad quad_from_f16(const void* p) {
    return (Quad)vcvt_f32_f16(vld1_f16(static_cast<const float16_t*>(p)));
  }
  // Rounds both to half precision: even in the low halves of the words, odd in the high ones.
  static FOVEA_INLINE Float pair_f16(Float even, Float odd) {
    const uint32x4_t low = vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(even)));
    const uint32x4_t high = vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(odd)));
    return vreinterpretq_f32_u32(vorrq_u32(low, vshlq_n_u32(high, 16)));
  }
};

}  // namespace fovea::simd::neon

#endif
