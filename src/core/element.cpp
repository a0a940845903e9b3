#include "src/core/element.hpp"

#include <bit>
#include <limits>

namespace fovea {
namespace {

constexpr uint32_t kSign = 0x80000000u;

// Rounds a float64 to the nearest float32 whose last bit is 1 when inexact, so that rounding again
// to a shorter type gives the same as rounding once.
float round_to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (back == value || value != value || (bits & ~kSign) == 0x7f800000u) return nearest;
  const bool away = (value > 0) == (back > value);
  if (away) --bits;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace

float f16_to_float(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t fraction = bits & 1023u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

uint16_t float_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const uint32_t magnitude = bits & ~kSign;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 2^16
  if (magnitude < 0x38800000u) {  // < 2^-14: adding 0.5 leaves units of 2^-24 in the fraction
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float bf16_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

double load_element(const void* data, DType dtype, int64_t index) noexcept {
  if (dtype == kF32) return static_cast<const float*>(data)[index];
  if (dtype == kF16) return f16_to_float(static_cast<const uint16_t*>(data)[index]);
  if (dtype == kBF16) return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
  if (dtype == kF64) return static_cast<const double*>(data)[index];
  if (dtype == kBool || dtype == kU8) return static_cast<const uint8_t*>(data)[index];
  if (dtype == kI32) return static_cast<const int32_t*>(data)[index];
  if (dtype == kI64) return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  return std::numeric_limits<double>::quiet_NaN();
}

void store_element(void* data, DType dtype, int64_t index, double value) noexcept {
  if (dtype == kF32)
    static_cast<float*>(data)[index] = static_cast<float>(value);
  else if (dtype == kF16)
    static_cast<uint16_t*>(data)[index] = float_to_f16(round_to_odd(value));
  else if (dtype == kBF16)
    static_cast<uint16_t*>(data)[index] = float_to_bf16(round_to_odd(value));
  else if (dtype == kF64)
    static_cast<double*>(data)[index] = value;
  else if (dtype == kBool)
    static_cast<uint8_t*>(data)[index] = value != 0 ? 1 : 0;
  else if (dtype == kU8)
    static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(value);
  else if (dtype == kI32)
    static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value);
  else if (dtype == kI64)
    static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value);
}

}  // namespace fovea
