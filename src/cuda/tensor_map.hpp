// Tensor maps for bulk copies of 16-bit tensors, encoded by the driver (found at run time, not
// linked).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fovea::cuda {

/// A {columns, rows, heads, batch} view: sizes, and element strides of the last three axes.
struct MapShape {
  std::int64_t columns, rows, heads, batch;
  std::int64_t row_stride, head_stride, batch_stride;
};

/// Columns are copied in panels of 64 (128 bytes, the swizzle's width). When they fill whole panels
/// the map is {64, rows, panels, heads, batch} and one copy moves `box_panels` panels; otherwise it
/// is {columns, rows, 1, heads, batch} and each copy moves one panel, so that the last one is cut
/// off at the tensor's edge.
inline constexpr int kPanelColumns = 64;
constexpr bool whole_panels(std::int64_t columns) { return columns % kPanelColumns == 0; }

/// Boxes of 64 columns x box_rows x box_panels. Elements outside the shape read as zero and are not
/// written. Returns a CUresult; CUDA_ERROR_NOT_FOUND when the driver has no tensor maps.
CUresult encode_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType type,
                           const MapShape& shape, int box_rows, int box_panels);
/// The same map of a tensor at another address. Results as above.
CUresult move_tensor_map(CUtensorMap* map, const void* data);

}  // namespace fovea::cuda
