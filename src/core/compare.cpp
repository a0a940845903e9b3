#include "src/core/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "src/core/element.hpp"

namespace fovea {

void Comparer::add(double got, double expected) noexcept {
  if (!std::isfinite(got) || !std::isfinite(expected)) {
    const bool same = std::isnan(expected) ? std::isnan(got) : got == expected;
    if (!same) ++mismatches_;
    return;
  }
  ++compared_;
  const double difference = std::abs(got - expected);
  max_abs_ = std::max(max_abs_, difference);
  l1_ += difference;
  l1_reference_ += std::abs(expected);
  l2_ += difference * difference;
  l2_reference_ += expected * expected;
  l2_got_ += got * got;
  product_ += got * expected;
}

Comparison Comparer::result() const noexcept {
  Comparison c;
  c.compared = compared_;
  c.nonfinite_mismatches = mismatches_;
  c.max_abs = max_abs_;
  const bool zero = l1_reference_ == 0;
  c.rel_l1 = zero ? max_abs_ : l1_ / l1_reference_;
  c.rel_l2 = zero ? max_abs_ : std::sqrt(l2_ / l2_reference_);
  const double norms = std::sqrt(l2_reference_) * std::sqrt(l2_got_);
  if (norms > 0)
    c.cosine = product_ / norms;
  else
    c.cosine = l2_reference_ == l2_got_ ? 1 : 0;
  return c;
}

void for_each_element(const TensorView& view, const std::function<void(int64_t, int64_t)>& visit) {
  const auto rank = static_cast<size_t>(view.rank);
  if (rank == 0 || view.numel() == 0) return;
  std::array<int64_t, kMaxRank> index{};
  const int64_t count = view.numel();
  int64_t offset = 0;
  for (int64_t position = 0; position < count; ++position) {
    visit(position, offset);
    for (size_t axis = rank; axis-- > 0;) {
      offset += view.stride[axis];
      if (++index[axis] < view.shape[axis]) break;
      offset -= view.stride[axis] * view.shape[axis];
      index[axis] = 0;
    }
  }
}

Comparison compare(const TensorView& got, std::span<const double> expected) {
  Comparer comparer;
  for_each_element(got, [&](int64_t position, int64_t offset) {
    comparer.add(load_element(got.data, got.dtype, offset),
                 expected[static_cast<size_t>(position)]);
  });
  return comparer.result();
}

Comparison compare(const TensorView& got, const TensorView& expected) {
  std::vector<double> values(static_cast<size_t>(expected.numel()));
  for_each_element(expected, [&](int64_t position, int64_t offset) {
    values[static_cast<size_t>(position)] = load_element(expected.data, expected.dtype, offset);
  });
  return compare(got, values);
}

}  // namespace fovea
