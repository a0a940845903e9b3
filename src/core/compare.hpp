// How far one result is from another.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "fovea/tensor_view.hpp"

namespace fovea {

// Differences over the positions where both values are finite. When the reference has norm 0 the
// relative figures hold the absolute ones (largest difference), so one bound serves both cases.
struct Comparison {
  int64_t compared = 0;
  double max_abs = 0;
  double rel_l1 = 0;
  double rel_l2 = 0;
  double cosine = 1;                 // 1 when both are zero, 0 when one is
  int64_t nonfinite_mismatches = 0;  // NaN, inf and -inf must stand at the same positions
};

// Adds pairs up in any number of steps.
class Comparer {
 public:
  void add(double got, double expected) noexcept;
  Comparison result() const noexcept;

 private:
  int64_t compared_ = 0;
  int64_t mismatches_ = 0;
  double max_abs_ = 0;
  double l1_ = 0, l1_reference_ = 0;
  double l2_ = 0, l2_reference_ = 0, l2_got_ = 0, product_ = 0;
};

// Calls visit(position, offset) for every element in row-major order; offset is in elements.
void for_each_element(const TensorView& view,
                      const std::function<void(int64_t position, int64_t offset)>& visit);

// `got` in row-major order against `expected`, which has got.numel() values.
Comparison compare(const TensorView& got, std::span<const double> expected);

// Two CPU tensors of the same shape, of any dtypes and strides.
Comparison compare(const TensorView& got, const TensorView& expected);

}  // namespace fovea
