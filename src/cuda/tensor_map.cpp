#include "cuda/tensor_map.hpp"

#include <cuda_runtime_api.h>

namespace fovea::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Encode>(function)
             : nullptr;
}

}  // namespace

CUresult encode_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType type,
                           const MapShape& shape, int box_columns, int box_rows) {
  static const Encode encode = find_encode();
  if (!encode) return CUDA_ERROR_NOT_FOUND;
  const cuuint64_t sizes[4] = {
      static_cast<cuuint64_t>(shape.columns), static_cast<cuuint64_t>(shape.rows),
      static_cast<cuuint64_t>(shape.heads), static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[3] = {static_cast<cuuint64_t>(shape.row_stride * 2),
                                 static_cast<cuuint64_t>(shape.head_stride * 2),
                                 static_cast<cuuint64_t>(shape.batch_stride * 2)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(box_columns),
                             static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encode(map, type, 4, const_cast<void*>(data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace fovea::cuda
