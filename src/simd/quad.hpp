// Four-lane building blocks that every instruction set has: loading and storing four elements of
// any dtype as float32, and transposing a 4x4 tile. Packing and unpacking are built from these.
//
// Everything is force-inlined, so no symbol compiled for a wide instruction set can leave its
// translation unit.
#pragma once

#include <cstdint>

namespace fovea::simd {

#define FOVEA_INLINE __attribute__((always_inline)) inline
#if defined(__clang__)
#define FOVEA_UNROLL _Pragma("unroll")
#define FOVEA_NO_UNROLL _Pragma("nounroll")
#else
#define FOVEA_UNROLL _Pragma("GCC unroll 16")
#define FOVEA_NO_UNROLL _Pragma("GCC unroll 1")
#endif

// Vectors of four elements that may alias anything; loads and stores go through the unaligned
// variants below.
typedef float Quad __attribute__((vector_size(16)));
typedef int32_t QuadInt __attribute__((vector_size(16)));
typedef uint32_t QuadBits __attribute__((vector_size(16)));
typedef uint16_t QuadHalf __attribute__((vector_size(8)));
typedef float QuadMem __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t QuadBitsMem __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t QuadHalfMem __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint8_t QuadBytes __attribute__((vector_size(4), aligned(1), may_alias));
typedef float FloatMem __attribute__((aligned(4), may_alias));
typedef uint16_t HalfMem __attribute__((aligned(2), may_alias));

FOVEA_INLINE Quad quad_load(const void* source) {
  return (Quad) * static_cast<const QuadMem*>(source);
}

FOVEA_INLINE void quad_store(void* target, Quad x) { *static_cast<QuadMem*>(target) = (QuadMem)x; }

FOVEA_INLINE Quad quad_set(float x) { return Quad{x, x, x, x}; }

// Rows a, b, c, d become columns.
FOVEA_INLINE void quad_transpose(Quad& a, Quad& b, Quad& c, Quad& d) {
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

FOVEA_INLINE Quad quad_from_bf16(const void* source) {
  const QuadHalf half = (QuadHalf) * static_cast<const QuadHalfMem*>(source);
  return (Quad)(__builtin_convertvector(half, QuadBits) << 16);
}

// Portable half precision. Multiplying by 2^112 moves the exponent and normalises subnormals.
FOVEA_INLINE Quad quad_from_f16_portable(const void* source) {
  const QuadHalf half = (QuadHalf) * static_cast<const QuadHalfMem*>(source);
  const QuadBits bits = __builtin_convertvector(half, QuadBits);
  const QuadBits sign = (bits & 0x8000u) << 16;
  const QuadBits magnitude = (bits & 0x7fffu) << 13;
  const QuadBits finite = (QuadBits)((Quad)magnitude * quad_set(0x1p112f));
  const QuadBits special = magnitude | 0x7f800000u;
  const QuadBits is_special = (QuadBits)((bits & 0x7c00u) == 0x7c00u);
  return (Quad)(((is_special & special) | (~is_special & finite)) | sign);
}

// Half precision in the low half of every word. Round to nearest, ties to even, overflow to
// infinity.
FOVEA_INLINE QuadBits quad_to_f16_bits(Quad x) {
  const QuadBits bits = (QuadBits)x;
  const QuadBits sign = (bits >> 16) & 0x8000u;
  const QuadBits magnitude = bits & 0x7fffffffu;
  // Normal results: rebias and round on the integer. Too small: let an addition round.
  const QuadBits normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const QuadBits tiny = (QuadBits)((Quad)magnitude + quad_set(0.5f)) - 0x3f000000u;
  const QuadBits is_tiny = (QuadBits)((QuadInt)magnitude < 0x38800000);
  const QuadBits is_huge = (QuadBits)((QuadInt)magnitude >= 0x47800000);
  const QuadBits is_nan = (QuadBits)((QuadInt)magnitude > 0x7f800000);
  QuadBits result = (is_tiny & tiny) | (~is_tiny & normal);
  result = (is_huge & 0x7c00u) | (~is_huge & result);
  result = (is_nan & 0x7e00u) | (~is_nan & result);
  return result | sign;
}

}  // namespace fovea::simd
