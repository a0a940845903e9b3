// Tensor maps for bulk copies of 16-bit tensors, encoded by the driver (found at run time, not linked).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fovea::cuda {

/// A {columns, rows, heads, batch} view: sizes, and element strides of the last three axes.
struct MapShape {
  std::int64_t columns, rows, heads, batch;
  std::int64_t row_stride, head_stride, batch_stride;
};

/// A box of box_columns x box_rows elements, swizzled over the width of its rows (64 columns: 128
/// bytes, 32 columns: 64 bytes). Elements outside the shape read as zero and are not written.
/// Returns a CUresult; CUDA_ERROR_NOT_FOUND when the driver has no tensor maps.
CUresult encode_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType type,
                           const MapShape& shape, int box_columns, int box_rows);

}  // namespace fovea::cuda
