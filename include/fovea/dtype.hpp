// Element types, with the bit layout of DLPack's DLDataType.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/error.hpp"

namespace fovea {

struct DType {
  uint8_t code = 2;  // DLPack: 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool
  uint8_t bits = 32;
  uint16_t lanes = 1;

  bool operator==(const DType&) const = default;
};

inline constexpr DType kF64{2, 64, 1};
inline constexpr DType kF32{2, 32, 1};
inline constexpr DType kF16{2, 16, 1};
inline constexpr DType kBF16{4, 16, 1};
inline constexpr DType kBool{6, 8, 1};
inline constexpr DType kU8{1, 8, 1};
inline constexpr DType kI32{0, 32, 1};
inline constexpr DType kI64{0, 64, 1};

// Bytes of one element.
constexpr size_t size_bytes(DType dtype) noexcept {
  return static_cast<size_t>(dtype.bits) * dtype.lanes / 8;
}

// "f32", "bf16", "bool", ... or "unknown". Thread-safe; static storage.
FOVEA_API std::string_view name(DType dtype) noexcept;

// The inverse of name(), case-insensitive; also accepts "float32", "bfloat16", "half" and the like.
// Nothing when the text names no known type.
FOVEA_API std::optional<DType> parse_dtype(std::string_view text) noexcept;

}  // namespace fovea
