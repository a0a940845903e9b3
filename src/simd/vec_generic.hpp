// Vector operations in terms of the compiler's generic 16-byte vectors: runs anywhere.
#pragma once

#include <cstdint>

#include "src/simd/quad.hpp"

namespace fovea::simd::generic {

struct Vec {
  using Float = Quad;
  using Mask = QuadInt;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 4;     // rows (keys or value columns) of a register tile
  static constexpr int kTileVectors = 2;  // vectors of queries of a register tile
  static constexpr bool kHasScale = false;
  static constexpr bool kHasBf16Dot = false;

  static FOVEA_INLINE Float load(const float* p) { return quad_load(p); }
  static FOVEA_INLINE void store(float* p, Float x) { quad_store(p, x); }
  static FOVEA_INLINE Float set(float x) { return quad_set(x); }
  static FOVEA_INLINE Float fma(Float a, Float b, Float c) { return a * b + c; }
  static FOVEA_INLINE Float add(Float a, Float b) { return a + b; }
  static FOVEA_INLINE Float sub(Float a, Float b) { return a - b; }
  static FOVEA_INLINE Float mul(Float a, Float b) { return a * b; }
  // The second operand where either is NaN.
  static FOVEA_INLINE Float max(Float a, Float b) { return a > b ? a : b; }
  static FOVEA_INLINE Mask equal(Float a, Float b) { return a == b; }
  static FOVEA_INLINE Mask less(Float a, Float b) { return a < b; }
  static FOVEA_INLINE Float select(Mask m, Float yes, Float no) { return m ? yes : no; }
  // 2^n for the integer whose biased form sits in the low bits of x.
  static FOVEA_INLINE Float exponent_from_low_bits(Float x) { return (Float)((QuadBits)x << 23); }

  // One vector from its quads, and transposing 4 x 4 in each of them.
  static FOVEA_INLINE Float join(const Quad (&x)[1]) { return (Float)x[0]; }
  static FOVEA_INLINE void split(Float x, Quad (&quads)[1]) { quads[0] = (Quad)x; }
  static FOVEA_INLINE void transpose_quads(Float& a, Float& b, Float& c, Float& d) {
    Quad w = (Quad)a, x = (Quad)b, y = (Quad)c, z = (Quad)d;
    quad_transpose(w, x, y, z);
    a = (Float)w, b = (Float)x, c = (Float)y, d = (Float)z;
  }

  static FOVEA_INLINE Quad quad_from_f16(const void* p) { return quad_from_f16_portable(p); }
  // Rounds both to half precision: even in the low halves of the words, odd in the high ones.
  static FOVEA_INLINE Float pair_f16(Float even, Float odd) {
    return (Float)(quad_to_f16_bits(even) | (quad_to_f16_bits(odd) << 16));
  }
};

}  // namespace fovea::simd::generic
