// The memory that a strided view may touch, checked in 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/error.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// Bytes from the first to behind the last element; 0 for an empty view. kMaxSize when it does not
// fit. Sizes and strides must be >= 0.
int64_t extent_bytes(const TensorView& view) noexcept;

// Refuses what nobody can read: rank not in 1..5, negative sizes or strides, sizes or extents
// beyond 64 bits, no address although there are elements, an address that is not a multiple of the
// element size. Error invalid_tensor naming the tensor.
Status check_memory(std::string_view name, const TensorView& view);

// The bytes between the first and the last element of a view that has passed check_memory.
struct MemoryRange {
  uintptr_t start = 0, bytes = 0;

  bool overlaps(const MemoryRange& other) const noexcept {
    if (bytes == 0 || other.bytes == 0) return false;
    return start <= other.start ? other.start - start < bytes : start - other.start < other.bytes;
  }
};
MemoryRange memory_range(const TensorView& view) noexcept;

// True when the two may share a byte. Both must have passed check_memory.
bool may_overlap(const TensorView& a, const TensorView& b) noexcept;

}  // namespace fovea
