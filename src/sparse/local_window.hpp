// The visible positions of a local window along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fovea::sparse {

// First and last position, both included.
struct AxisWindow {
  int64_t first = 0;
  int64_t last = 0;
};

// `window` positions in total around `position`, an even width one further to the low side, cut to
// 0 .. size - 1.
constexpr AxisWindow axis_window(int64_t position, int64_t window, int64_t size) noexcept {
  const int64_t first = position - window / 2;
  return {std::max<int64_t>(first, 0), std::min(first + window, size) - 1};
}

}  // namespace fovea::sparse
