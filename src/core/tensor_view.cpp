#include "fovea/tensor_view.hpp"

#include <algorithm>
#include <limits>

#include "src/core/text.hpp"

namespace fovea {
namespace {

// The layout of DLPack's DLTensor (dlpack.h, stable since version 0.6).
struct DlTensor {
  void* data;
  Device device;
  int32_t ndim;
  DType dtype;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
};
static_assert(sizeof(Device) == 8 && sizeof(DType) == 4);
static_assert(sizeof(DlTensor) == 48);

Error tensor_error(std::string message) {
  return {ErrorCode::invalid_tensor, std::move(message), {}};
}

bool known(DeviceType type) noexcept {
  switch (type) {
    case DeviceType::cpu:
    case DeviceType::cuda:
    case DeviceType::cuda_host:
    case DeviceType::rocm:
    case DeviceType::extension:
    case DeviceType::oneapi:
      return true;
  }
  return false;
}

// Row-major strides; false when they do not fit in 64 bits.
bool fill_contiguous(TensorView& view) noexcept {
  int64_t step = 1;
  for (int32_t axis = view.rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    view.stride[i] = step;
    if (__builtin_mul_overflow(step, std::max<int64_t>(view.shape[i], 1), &step)) return false;
  }
  return true;
}

}  // namespace

int64_t TensorView::numel() const noexcept {
  int64_t count = 1;
  for (int32_t i = 0; i < rank; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

bool TensorView::contiguous() const noexcept {
  if (numel() == 0) return true;
  int64_t step = 1;
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    if (shape[i] == 1) continue;
    if (stride[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

TensorView make_view(void* data, DType dtype, std::span<const int64_t> shape, Device device) {
  TensorView view;
  view.data = data;
  view.device = device;
  view.dtype = dtype;
  view.rank = static_cast<int32_t>(std::min<size_t>(shape.size(), kMaxRank));
  std::copy_n(shape.begin(), view.rank, view.shape.begin());
  fill_contiguous(view);
  return view;
}

TensorView make_view(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device) {
  return make_view(data, dtype, std::span<const int64_t>(shape.begin(), shape.size()), device);
}

std::string to_string(const TensorView& view) {
  std::string out(name(view.dtype));
  out += '[';
  for (int32_t i = 0; i < view.rank; ++i) {
    if (i > 0) out += ',';
    out += std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return out += ']';
}

Result<TensorView> from_dlpack(const void* dl_tensor) {
  if (dl_tensor == nullptr) return tensor_error("the DLPack tensor is a null pointer");
  const auto& source = *static_cast<const DlTensor*>(dl_tensor);
  if (source.ndim < 1 || source.ndim > kMaxRank)
    return tensor_error(text::concat("DLPack tensor: rank ", source.ndim,
                                     " is not supported (accepted: 1..", kMaxRank, ")"));
  if (!known(source.device.type))
    return tensor_error(text::concat("DLPack tensor: device type ",
                                     static_cast<int32_t>(source.device.type),
                                     " is not supported (accepted: cpu, cuda, cuda_host, rocm)"));
  if (source.dtype.lanes != 1)
    return tensor_error(text::concat("DLPack tensor: vector elements with ", source.dtype.lanes,
                                     " lanes are not supported (accepted: 1)"));
  if (source.shape == nullptr) return tensor_error("DLPack tensor: shape is a null pointer");
  TensorView view;
  view.device = source.device;
  view.dtype = source.dtype;
  view.rank = source.ndim;
  std::copy_n(source.shape, view.rank, view.shape.begin());
  for (int32_t i = 0; i < view.rank; ++i)
    if (view.shape[static_cast<size_t>(i)] < 0)
      return tensor_error(text::concat("DLPack tensor: shape[", i, "] is ",
                                       view.shape[static_cast<size_t>(i)], ", it must be >= 0"));
  if (source.strides != nullptr)
    std::copy_n(source.strides, view.rank, view.stride.begin());
  else if (!fill_contiguous(view))
    return tensor_error(
        text::concat("DLPack tensor ", to_string(view), ": the size does not fit in 64 bits"));
  if (source.data != nullptr) view.data = static_cast<char*>(source.data) + source.byte_offset;
  return view;
}

}  // namespace fovea
