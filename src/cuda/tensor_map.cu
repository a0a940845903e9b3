#include "src/cuda/tensor_map.hpp"

#include <cuda_runtime_api.h>

namespace fovea::cuda {
namespace {

template <class Function>
Function find(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Function>(function)
             : nullptr;
}

}  // namespace

CUresult encode_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType type,
                           const MapShape& shape, int box_rows, int box_panels) {
  static const auto encode = find<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode) return CUDA_ERROR_NOT_FOUND;
  const bool whole = whole_panels(shape.columns);
  const std::int64_t columns = whole ? kPanelColumns : shape.columns;
  const std::int64_t panels = whole ? shape.columns / kPanelColumns : 1;
  const cuuint64_t sizes[5] = {static_cast<cuuint64_t>(columns),
                               static_cast<cuuint64_t>(shape.rows), static_cast<cuuint64_t>(panels),
                               static_cast<cuuint64_t>(shape.heads),
                               static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[4] = {static_cast<cuuint64_t>(shape.row_stride * 2), kPanelColumns * 2,
                                 static_cast<cuuint64_t>(shape.head_stride * 2),
                                 static_cast<cuuint64_t>(shape.batch_stride * 2)};
  const cuuint32_t box[5] = {kPanelColumns, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(whole ? box_panels : 1), 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const auto attempt = [&] {
    return encode(map, type, 5, const_cast<void*>(data), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  const CUresult result = attempt();
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  // The thread has not used the runtime yet; choosing its device makes the context current.
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) return result;
  return attempt();
}

CUresult move_tensor_map(CUtensorMap* map, const void* data) {
  static const auto replace =
      find<decltype(&cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
  return replace ? replace(map, const_cast<void*>(data)) : CUDA_ERROR_NOT_FOUND;
}

}  // namespace fovea::cuda
