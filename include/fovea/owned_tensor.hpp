// A tensor together with what keeps its memory alive.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "fovea/dtype.hpp"
#include "fovea/error.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// Copies share the memory; it is freed with the last of them.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  const TensorView& view() const noexcept { return view_; }
  // Allocates uninitialised CPU memory, 64-byte aligned. Error out_of_memory.
  FOVEA_API static Result<OwnedTensor> allocate(DType dtype, std::span<const int64_t> shape);
  // A view with what keeps its memory alive; on a device, memory that is freed in stream order.
  static OwnedTensor adopt(const TensorView& view, std::shared_ptr<void> memory) {
    OwnedTensor tensor;
    tensor.memory_ = std::move(memory);
    tensor.view_ = view;
    return tensor;
  }

 private:
  std::shared_ptr<void> memory_;
  TensorView view_;
};

}  // namespace fovea
