#include <array>
#include <optional>

#include "fovea/attention.hpp"
#include "src/core/cu_seqlens.hpp"
#include "src/core/list_shape.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using text::concat;

Error wrong(const std::string& message) {
  return {ErrorCode::invalid_value, concat("attention: ", message), {}};
}

int64_t length_at(const TensorView& view, int64_t index) noexcept {
  return view.dtype == kI64 ? static_cast<const int64_t*>(view.data)[index]
                            : static_cast<const int32_t*>(view.data)[index];
}

Status check_lengths(const TensorView& lengths, const Problem& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t length = length_at(lengths, b);
    if (length < 0 || length > p.seq_kv)
      return wrong(concat("kv_lengths[", b, "] is ", length, " (accepted: 0..", p.seq_kv, ")"));
  }
  return {};
}

using Index = std::array<int64_t, kMaxRank>;

// The first element that is neither 0 nor 1, in row-major order.
template <class T>
std::optional<Index> first_bad(const TensorView& mask) noexcept {
  const auto* const data = static_cast<const T*>(mask.data);
  const auto rank = static_cast<size_t>(mask.rank);
  for (size_t axis = 0; axis < rank; ++axis)
    if (mask.shape[axis] == 0) return std::nullopt;
  const int64_t row_size = mask.shape[rank - 1];
  Index index{};
  for (;;) {
    int64_t offset = 0;
    for (size_t axis = 0; axis + 1 < rank; ++axis) offset += index[axis] * mask.stride[axis];
    const T* const row = data + offset;
    for (int64_t i = 0; i < row_size; ++i) {
      const T value = row[i * mask.stride[rank - 1]];
      if (value == 0 || value == 1) continue;
      index[rank - 1] = i;
      return index;
    }
    size_t axis = rank - 1;
    for (; axis > 0; --axis) {
      // A repeated row (stride 0) is read once.
      const bool repeated = mask.stride[axis - 1] == 0;
      if (!repeated && ++index[axis - 1] < mask.shape[axis - 1]) break;
      index[axis - 1] = 0;
    }
    if (axis == 0) return std::nullopt;
  }
}

template <class T>
Status check_zero_one(const TensorView& mask) {
  const std::optional<Index> bad = first_bad<T>(mask);
  if (!bad) return {};
  int64_t offset = 0;
  std::string where;
  for (size_t axis = 0; axis < static_cast<size_t>(mask.rank); ++axis) {
    offset += (*bad)[axis] * mask.stride[axis];
    where += concat(axis > 0 ? "," : "", (*bad)[axis]);
  }
  return wrong(concat("mask ", to_string(mask), " holds ",
                      int64_t{static_cast<const T*>(mask.data)[offset]}, " at [", where,
                      "] (accepted: 0 and 1; pass a float mask for biases)"));
}

// Every row of block lists: its count, and its indices in order.
Status check_lists(const AttentionTensors& t, const Problem& p, const ListShape& lists) {
  const auto* counts = static_cast<const int32_t*>(t.block_counts.data);
  const auto* indices = static_cast<const int32_t*>(t.block_indices.data);
  const int64_t rows = t.block_counts.numel();
  const int64_t columns = (p.seq_kv + lists.block_kv - 1) / lists.block_kv;
  for (int64_t row = 0; row < rows; ++row, indices += lists.most) {
    if (counts[row] < 0 || counts[row] > lists.most)
      return wrong(concat("block_counts holds ", counts[row], " at row ", row, " (accepted: 0..",
                          lists.most, ")"));
    int64_t low = 0;
    for (int32_t n = 0; n < counts[row]; ++n) {
      if (indices[n] < low || indices[n] >= columns)
        return wrong(concat("block_indices holds ", indices[n], " at [", row, ",", n,
                            "] (accepted: ascending, 0..", columns - 1, ")"));
      low = int64_t{indices[n]} + 1;
    }
  }
  return {};
}

}  // namespace

Status check_values(const AttentionTensors& tensors, const Problem& problem) noexcept {
  if (tensors.q.device.type != DeviceType::cpu)
    return Error{ErrorCode::invalid_argument,
                 concat("attention: values are checked on the CPU only, the tensors are on ",
                        to_string(tensors.q.device)),
                 {}};
  if (problem.has_kv_lengths) FOVEA_CHECK(check_lengths(tensors.kv_lengths, problem));
  if (problem.layout == Layout::packed) {
    FOVEA_CHECK(read_cu_seqlens("cu_seqlens_q", tensors.cu_seqlens_q, problem.seq_q));
    FOVEA_CHECK(read_cu_seqlens("cu_seqlens_kv", tensors.cu_seqlens_kv, problem.seq_kv));
  }
  if (const std::optional<ListShape> lists = list_shape(problem))
    FOVEA_CHECK(check_lists(tensors, problem, *lists));
  if (tensors.mask.present() && tensors.mask.dtype == kI32)
    return check_zero_one<int32_t>(tensors.mask);
  if (tensors.mask.present() && tensors.mask.dtype == kI64)
    return check_zero_one<int64_t>(tensors.mask);
  return {};
}

}  // namespace fovea
