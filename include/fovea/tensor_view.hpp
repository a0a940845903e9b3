// A view of a strided tensor that somebody else owns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "fovea/device.hpp"
#include "fovea/dtype.hpp"
#include "fovea/error.hpp"

namespace fovea {

inline constexpr int kMaxRank = 5;

// Trivially copyable. `stride` is in elements and always filled. data == nullptr with rank == 0
// means "absent".
struct TensorView {
  void* data = nullptr;
  Device device = kCpu;
  DType dtype = kF32;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  bool present() const noexcept { return rank > 0; }
  // Number of elements (1 for rank 0). Sizes must be valid; see validate().
  FOVEA_API int64_t numel() const noexcept;
  FOVEA_API bool contiguous() const noexcept;
};

// A contiguous row-major view. `shape` has 1..kMaxRank entries; the view does not own `data`.
FOVEA_API TensorView make_view(void* data, DType dtype, std::span<const int64_t> shape,
                               Device device = kCpu);
FOVEA_API TensorView make_view(void* data, DType dtype, std::initializer_list<int64_t> shape,
                               Device device = kCpu);

// "f32[2,60,4,32]". Thread-safe; allocates.
FOVEA_API std::string to_string(const TensorView& view);

// Copies the metadata of a DLPack DLTensor (byte_offset applied, null strides filled in). The
// memory stays with its owner. Errors: invalid_tensor for null, rank > 5, negative size, unknown
// device.
FOVEA_API Result<TensorView> from_dlpack(const void* dl_tensor);

}  // namespace fovea
