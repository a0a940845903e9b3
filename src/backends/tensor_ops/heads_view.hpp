// A tensor of heads whatever its layout, and the checks that every operation makes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fovea/error.hpp"
#include "fovea/layout.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea::tensor_ops {

// [batch, seq, heads, dim] with element strides; packed tensors have batch 1.
struct HeadsView {
  void* data = nullptr;
  Device device;
  DType dtype;
  int64_t batch = 1, seq = 0, heads = 0, dim = 0;
  int64_t batch_stride = 0, seq_stride = 0, head_stride = 0;

  bool same_shape(const HeadsView& o) const noexcept {
    return batch == o.batch && seq == o.seq && heads == o.heads && dim == o.dim;
  }
  int64_t offset(int64_t b, int64_t s, int64_t h) const noexcept {
    return b * batch_stride + s * seq_stride + h * head_stride;
  }
};

// Rank 4 (packed 3), last axis contiguous, sizes below 2^31. Error invalid_tensor.
Result<HeadsView> heads_view(std::string_view name, const TensorView& view, Layout layout);

// Of an LSE: f32 [B,H,S], packed [H,T], any strides; dim is 1.
Result<HeadsView> lse_view(std::string_view name, const TensorView& view, Layout layout);

Error wrong(std::string_view tensor, std::string_view what);
Status check_same_device(std::string_view name, const TensorView& view, Device device);
// f32, f16 or bf16.
Status check_float(std::string_view name, DType dtype);

// The answer to CUDA tensors in a build without CUDA.
Error not_built(std::string_view operation);
// The error of a launch; success for 0 (cudaSuccess).
Status launch_status(std::string_view operation, int code);

}  // namespace fovea::tensor_ops
