// The 16-bit input types: how two floats are packed and how non-finite values are recognised.
#pragma once

#include "src/cuda/ptx.cuh"

namespace fovea::cuda {

struct Bf16 {
  static constexpr uint32_t kExponent = 0x7f80u;
  static constexpr uint32_t kExponentUnit = 0x0080u;
  FOVEA_DEVICE static uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  FOVEA_DEVICE static float widen(uint32_t half) { return __uint_as_float(half << 16); }
};

struct F16 {
  static constexpr uint32_t kExponent = 0x7c00u;
  static constexpr uint32_t kExponentUnit = 0x0400u;
  FOVEA_DEVICE static uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  FOVEA_DEVICE static float widen(uint32_t half) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(static_cast<uint16_t>(half)));
    return r;
  }
};

/// Bit 15 and/or 31 set where the low and/or high half is infinite or NaN.
template <class Type>
FOVEA_DEVICE uint32_t non_finite_halves(uint32_t pair) {
  constexpr uint32_t kMask = Type::kExponent * 0x10001u;
  return ((pair & kMask) + Type::kExponentUnit * 0x10001u) & 0x80008000u;
}
/// The pair with its non-finite halves replaced by zero.
template <class Type>
FOVEA_DEVICE uint32_t finite_halves(uint32_t pair) {
  const uint32_t bad = non_finite_halves<Type>(pair);
  return pair & ~((bad >> 15) * 0xffffu);
}

}  // namespace fovea::cuda
