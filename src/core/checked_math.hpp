// 64-bit products and sums of sizes that must not wrap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace fovea {

inline constexpr int64_t kMaxSize = std::numeric_limits<int64_t>::max();

// For operands >= 0; kMaxSize when the result does not fit.
constexpr int64_t saturating_multiply(int64_t a, int64_t b) noexcept {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? kMaxSize : out;
}
constexpr int64_t saturating_add(int64_t a, int64_t b) noexcept {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? kMaxSize : out;
}

// Product in which a size of 0 (or less) counts as 1, so that the strides of an empty tensor are
// covered too.
constexpr int64_t saturating_product(std::initializer_list<int64_t> sizes) noexcept {
  int64_t out = 1;
  for (int64_t size : sizes) out = saturating_multiply(out, std::max<int64_t>(size, 1));
  return out;
}

}  // namespace fovea
