// From a checked view to what a kernel takes.
#pragma once

#include <algorithm>

#include "fovea/backend.hpp"
#include "src/backends/tensor_ops/heads_view.hpp"
#include "src/backends/tensor_ops/kernels.hpp"

namespace fovea::tensor_ops {

inline HeadsData data_of(const HeadsView& v) {
  return {v.data, v.batch_stride, v.seq_stride, v.head_stride};
}
inline Element element_of(DType dtype) {
  if (dtype == kF16) return Element::f16;
  return dtype == kBF16 ? Element::bf16 : Element::f32;
}
inline CUstream_st* handle_of(Stream stream) { return static_cast<CUstream_st*>(stream.handle); }

/// Kernels count the units of one batch item, at most two per element, in 32 bits.
inline Status check_kernel_sizes(std::string_view name, const HeadsView& v) {
  const int64_t rows = v.seq * v.heads;  // axes are below 2^31
  if (v.batch < 65536 && (v.dim == 0 || rows < (int64_t{1} << 30) / std::max<int64_t>(v.dim, 1)))
    return {};
  return wrong(name, "has 65536 or more batch items, or 2^30 or more elements in one of them");
}

}  // namespace fovea::tensor_ops
