// Reading and rounding of elements for the oracle; shared with no fast path on purpose.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fovea/dtype.hpp"

namespace fovea::backends::reference {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline double widen(float x) noexcept { return x; }

inline double widen(BF16 x) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline double widen(F16 x) noexcept {
  const uint64_t sign = static_cast<uint64_t>(x.bits >> 15) << 63;
  const uint64_t exponent = (x.bits >> 10) & 31;
  const uint64_t fraction = x.bits & 1023;
  if (exponent == 0) {
    const double magnitude = static_cast<double>(fraction) * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint64_t wide_exponent = exponent == 31 ? 2047 : exponent + 1023 - 15;
  return std::bit_cast<double>(sign | wide_exponent << 52 | fraction << 42);
}

// Rounds to a float with `fraction_bits` of fraction and a smallest normal exponent of
// `min_exponent`, ties to even; too large becomes infinity at `limit` = 2^(largest exponent + 1).
inline double round_to(double x, int fraction_bits, int min_exponent, double limit) noexcept {
  if (!std::isfinite(x) || x == 0.0) return x;
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                    : rounded;
}

inline void narrow(double x, float& out) noexcept { out = static_cast<float>(x); }

inline void narrow(double x, BF16& out) noexcept {
  const auto rounded = static_cast<float>(round_to(x, 7, -126, std::ldexp(1.0, 128)));
  out.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);
}

inline void narrow(double x, F16& out) noexcept {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(round_to(x, 10, -14, std::ldexp(1.0, 16)));
  uint16_t bits;
  if (std::isnan(magnitude))
    bits = 0x7e00;
  else if (std::isinf(magnitude))
    bits = 0x7c00;
  else if (magnitude < std::ldexp(1.0, -14))
    bits = static_cast<uint16_t>(std::ldexp(magnitude, 24));
  else {
    const int exponent = std::ilogb(magnitude);
    const double fraction = std::ldexp(magnitude, 10 - exponent) - 1024;
    bits = static_cast<uint16_t>(((exponent + 15) << 10) | static_cast<int>(fraction));
  }
  out.bits = static_cast<uint16_t>(sign | bits);
}

// Element `index` of memory holding `dtype` (f32, f16 or bf16).
inline double read(const void* data, DType dtype, int64_t index) noexcept {
  if (dtype == kF32) return widen(static_cast<const float*>(data)[index]);
  if (dtype == kF16) return widen(static_cast<const F16*>(data)[index]);
  return widen(static_cast<const BF16*>(data)[index]);
}

// The `n` elements from `index` on.
inline void read(const void* data, DType dtype, int64_t index, double* out, size_t n) noexcept {
  const auto all = [=](const auto* elements) {
    for (size_t i = 0; i < n; ++i) out[i] = widen(elements[i]);
  };
  if (dtype == kF32)
    all(static_cast<const float*>(data) + index);
  else if (dtype == kF16)
    all(static_cast<const F16*>(data) + index);
  else
    all(static_cast<const BF16*>(data) + index);
}

inline void write(void* data, DType dtype, int64_t index, double x) noexcept {
  if (dtype == kF32)
    narrow(x, static_cast<float*>(data)[index]);
  else if (dtype == kF16)
    narrow(x, static_cast<F16*>(data)[index]);
  else
    narrow(x, static_cast<BF16*>(data)[index]);
}

}  // namespace fovea::backends::reference
