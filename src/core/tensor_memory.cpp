#include "src/core/tensor_memory.hpp"

#include <string>

#include "src/core/checked_math.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using text::concat;

Error refuse(std::string_view name, const TensorView& view, std::string_view what) {
  return {
      ErrorCode::invalid_tensor, concat("attention: ", name, ' ', to_string(view), ": ", what), {}};
}

}  // namespace

int64_t extent_bytes(const TensorView& view) noexcept {
  int64_t last = 0;
  for (int32_t axis = 0; axis < view.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (view.shape[i] == 0) return 0;
    last = saturating_add(last, saturating_multiply(view.shape[i] - 1, view.stride[i]));
  }
  return saturating_multiply(saturating_add(last, 1), static_cast<int64_t>(size_bytes(view.dtype)));
}

Status check_memory(std::string_view name, const TensorView& view) {
  if (view.rank < 1 || view.rank > kMaxRank)
    return Error{
        ErrorCode::invalid_tensor,
        concat("attention: ", name, " has rank ", view.rank, " (accepted: 1..", kMaxRank, ")"),
        {}};
  if (size_bytes(view.dtype) == 0)
    return refuse(name, view, "elements of this type have no whole number of bytes");
  int64_t bytes = static_cast<int64_t>(size_bytes(view.dtype));
  for (int32_t axis = 0; axis < view.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (view.shape[i] < 0)
      return refuse(name, view,
                    concat("axis ", axis, " has size ", view.shape[i], " (accepted: 0 or more)"));
    if (view.stride[i] < 0)
      return refuse(name, view,
                    concat("axis ", axis, " has stride ", view.stride[i],
                           " (accepted: 0 or more; copy it to a tensor without flipped axes)"));
    bytes = saturating_multiply(bytes, std::max<int64_t>(view.shape[i], 1));
  }
  if (bytes == kMaxSize) return refuse(name, view, "its size in bytes does not fit in 64 bits");
  const int64_t extent = extent_bytes(view);
  if (extent == kMaxSize)
    return refuse(name, view, "its strides reach beyond what 64 bits can address");
  if (extent > 0 && view.data == nullptr) return refuse(name, view, "its data is a null pointer");
  const size_t element = size_bytes(view.dtype);
  if (reinterpret_cast<uintptr_t>(view.data) % element != 0)
    return refuse(name, view,
                  concat("its address is not a multiple of the element size, ", element, " bytes"));
  return {};
}

MemoryRange memory_range(const TensorView& view) noexcept {
  return {reinterpret_cast<uintptr_t>(view.data), static_cast<uintptr_t>(extent_bytes(view))};
}

bool may_overlap(const TensorView& a, const TensorView& b) noexcept {
  return memory_range(a).overlaps(memory_range(b));
}

}  // namespace fovea
