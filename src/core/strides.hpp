// Which of the known kinds the strides of q, k and v are.
#pragma once

#include "fovea/problem.hpp"

namespace fovea {

// Sets strides_kind and the three strides of a problem whose sizes and layout are final: the first
// kind that reads the same memory as q, k and v, else custom. Strides of axes that are never
// stepped along (size 0 or 1, empty tensors) do not count.
void name_strides(Problem& problem, const Strides& q, const Strides& k, const Strides& v) noexcept;

}  // namespace fovea
