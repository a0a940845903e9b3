#include "src/backends/tensor_ops/heads_view.hpp"

#include <string>

#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"

#if FOVEA_CUDA_PORTABLE
#include "src/backends/tensor_ops/kernels.hpp"
#endif

namespace fovea::tensor_ops {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 31;

Status check_sizes(std::string_view name, const TensorView& view, int rank) {
  if (view.rank != rank)
    return wrong(name, text::concat("has rank ", view.rank, ", expected ", rank));
  FOVEA_CHECK(check_memory(name, view));
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i)
    if (view.shape[i] >= kMaxSize) return wrong(name, "has an axis of 2^31 or more");
  return {};
}

}  // namespace

Error wrong(std::string_view tensor, std::string_view what) {
  return {ErrorCode::invalid_tensor, text::concat(tensor, ' ', what), {}};
}

Result<HeadsView> heads_view(std::string_view name, const TensorView& t, Layout layout) {
  const bool packed = layout == Layout::packed;
  FOVEA_CHECK(check_sizes(name, t, packed ? 3 : 4));
  HeadsView v;
  v.data = t.data;
  v.device = t.device;
  v.dtype = t.dtype;
  const size_t last = packed ? 2 : 3;
  const size_t seq = packed ? 0 : layout == Layout::bshd ? 1 : 2;
  const size_t head = packed ? 1 : layout == Layout::bshd ? 2 : 1;
  if (!packed) {
    v.batch = t.shape[0];
    v.batch_stride = t.stride[0];
  }
  v.seq = t.shape[seq];
  v.seq_stride = t.stride[seq];
  v.heads = t.shape[head];
  v.head_stride = t.stride[head];
  v.dim = t.shape[last];
  if (v.dim > 1 && t.stride[last] != 1)
    return wrong(name, "has a last axis that is not contiguous");
  return v;
}

Result<HeadsView> lse_view(std::string_view name, const TensorView& t, Layout layout) {
  const bool packed = layout == Layout::packed;
  FOVEA_CHECK(check_sizes(name, t, packed ? 2 : 3));
  if (t.dtype != kF32)
    return wrong(name, text::concat("has dtype ", fovea::name(t.dtype), ", expected f32"));
  HeadsView v;
  v.data = t.data;
  v.device = t.device;
  v.dtype = t.dtype;
  v.dim = 1;
  const size_t head = packed ? 0 : 1;
  if (!packed) {
    v.batch = t.shape[0];
    v.batch_stride = t.stride[0];
  }
  v.heads = t.shape[head];
  v.head_stride = t.stride[head];
  v.seq = t.shape[head + 1];
  v.seq_stride = t.stride[head + 1];
  return v;
}

Status check_same_device(std::string_view name, const TensorView& view, Device device) {
  if (view.device == device) return {};
  return wrong(
      name, text::concat("is on ", to_string(view.device), ", the others on ", to_string(device)));
}

Status check_float(std::string_view name, DType dtype) {
  if (dtype == kF32 || dtype == kF16 || dtype == kBF16) return {};
  return wrong(name, text::concat("has dtype ", fovea::name(dtype), ", expected f32, f16 or bf16"));
}

Error not_built(std::string_view operation) {
  return {
      ErrorCode::not_built,
      text::concat(operation, ": the tensors are on a GPU, and this binary holds no CUDA code"),
      {{ReasonCode::not_built, "device", "cuda", "cpu", "rebuild with ./dev build --cuda auto"}}};
}

Status launch_status(std::string_view operation, int code) {
  if (code == 0) return {};
#if FOVEA_CUDA_PORTABLE
  return Error{ErrorCode::device_error,
               text::concat(operation, ": ", describe(code), " (code ", code, ')'),
               {}};
#else
  return not_built(operation);
#endif
}

}  // namespace fovea::tensor_ops
