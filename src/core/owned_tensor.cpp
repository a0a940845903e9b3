#include "fovea/owned_tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "src/core/checked_math.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

Result<OwnedTensor> OwnedTensor::allocate(DType dtype, std::span<const int64_t> shape) {
  if (shape.empty() || shape.size() > static_cast<size_t>(kMaxRank))
    return Error{ErrorCode::invalid_argument,
                 text::concat("a tensor of rank ", shape.size(),
                              " cannot be allocated (accepted: 1..", kMaxRank, ")"),
                 {}};
  int64_t bytes = static_cast<int64_t>(size_bytes(dtype));
  for (int64_t size : shape) {
    if (size < 0)
      return Error{ErrorCode::invalid_argument,
                   text::concat("a tensor of size ", size, " cannot be allocated"),
                   {}};
    bytes = saturating_multiply(bytes, size);
  }
  OwnedTensor tensor;
  tensor.view_ = make_view(nullptr, dtype, shape);
  // An empty tensor has an address too.
  void* const data = bytes == kMaxSize
                         ? nullptr
                         : ::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                                          kAlignment, std::nothrow);
  if (data == nullptr)
    return Error{ErrorCode::out_of_memory,
                 text::concat("no memory for ", to_string(tensor.view_), " (", bytes, " bytes)"),
                 {}};
  tensor.memory_ =
      std::shared_ptr<void>(data, [](void* memory) { ::operator delete(memory, kAlignment); });
  tensor.view_.data = data;
  return tensor;
}

}  // namespace fovea
