#include "src/backends/run_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/tensor_view.hpp"
#include "src/core/list_shape.hpp"
#include "src/core/tensor_members.hpp"
#include "src/core/tensor_memory.hpp"

namespace fovea::backends {
namespace {

Error wrong(std::string_view tensor, std::string what) {
  return {ErrorCode::invalid_tensor,
          std::string(tensor) + ' ' + std::move(what) + "; plan again for other tensors",
          {}};
}

std::string list(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(sizes[i]);
  }
  return text += ']';
}

std::span<const int64_t> shape_of(const TensorView& t) {
  return {t.shape.data(), static_cast<size_t>(t.rank)};
}

// What a tensor of the call must be; `strides` may be empty (any).
struct Expected {
  std::string_view name;
  DType dtype;
  std::array<int64_t, 4> shape{};
  size_t rank = 0;

  std::span<const int64_t> sizes() const { return {shape.data(), rank}; }
};

Status check_presence(std::string_view name, const TensorView& t, bool planned) {
  if (t.present() == planned) return {};
  return wrong(name, planned ? "is missing, but the plan was made with it"
                             : "is given, but the plan was made without it");
}

Status check_one(const Expected& e, const TensorView& t, Device device) {
  if (t.rank < 1 || t.rank > kMaxRank) return wrong(e.name, "is missing");
  if (t.device != device)
    return wrong(e.name, "is on " + to_string(t.device) + ", planned for " + to_string(device));
  if (t.dtype != e.dtype)
    return wrong(e.name, "has dtype " + std::string(name(t.dtype)) + ", planned " +
                             std::string(name(e.dtype)));
  const std::span<const int64_t> shape = shape_of(t);
  bool same = shape.size() == e.rank;
  int64_t elements = 1;
  for (size_t i = 0; same && i < e.rank; ++i) {
    same = shape[i] == e.shape[i];
    elements *= shape[i];
  }
  if (!same) return wrong(e.name, "has shape " + list(shape) + ", planned " + list(e.sizes()));
  if (elements != 0 && t.data == nullptr) return wrong(e.name, "has a null data pointer");
  return {};
}

Expected heads_tensor(std::string_view name, DType dtype, Layout layout, int64_t batch, int64_t seq,
                      int64_t heads, int64_t dim) {
  switch (layout) {
    case Layout::packed:
      return {name, dtype, {seq, heads, dim}, 3};
    case Layout::bhsd:
      return {name, dtype, {batch, heads, seq, dim}, 4};
    case Layout::bshd:
      break;
  }
  return {name, dtype, {batch, seq, heads, dim}, 4};
}

std::array<int64_t, 4> strides_of(Layout layout, const Strides& s) {
  if (layout == Layout::packed) return {s.seq, s.head, 1};
  if (layout == Layout::bhsd) return {s.batch, s.head, s.seq, 1};
  return {s.batch, s.seq, s.head, 1};
}

Status check_strides(const Expected& e, const TensorView& t, Layout layout, const Strides& s) {
  const std::array<int64_t, 4> planned = strides_of(layout, s);
  bool empty = false;
  for (size_t i = 0; i < e.rank; ++i) empty = empty || t.shape[i] == 0;
  for (size_t i = 0; !empty && i < e.rank; ++i)
    if (t.shape[i] > 1 && t.stride[i] != planned[i])
      return wrong(e.name, "has strides " + list({t.stride.data(), e.rank}) + ", planned " +
                               list({planned.data(), e.rank}));
  return {};
}

Status check_mask(const Problem& p, const TensorView& mask, Device device) {
  FOVEA_CHECK(check_presence("mask", mask, p.mask.kind != MaskKind::none));
  if (!mask.present()) return {};
  const int64_t batch = p.mask.per_batch ? p.batch : 1;
  const int64_t heads = p.mask.per_head ? p.heads_q : 1;
  const int64_t rows = p.mask.per_query ? p.seq_q : 1;
  Expected e{"mask", p.mask.dtype, {batch, heads, rows, p.seq_kv}, 4};
  if (p.mask.kind == MaskKind::keys)
    e = {"mask", p.mask.dtype, {batch, p.seq_kv}, 2};
  else if (mask.rank == 3 && !p.mask.per_head)
    e = {"mask", p.mask.dtype, {batch, rows, p.seq_kv}, 3};
  FOVEA_CHECK(check_one(e, mask, device));
  for (size_t i = 0; i < e.rank; ++i)
    if (mask.stride[i] < 0) return wrong("mask", "has a negative stride");
  if (p.seq_kv > 1 && mask.stride[e.rank - 1] != 1)
    return wrong("mask", "has a last axis that is not contiguous");
  return {};
}

Status check_vector(std::string_view name, const TensorView& t, bool planned, int64_t size,
                    bool wide, Device device) {
  FOVEA_CHECK(check_presence(name, t, planned));
  if (!planned) return {};
  const DType dtype = wide && t.dtype == kI64 ? kI64 : kI32;
  FOVEA_CHECK(check_one({name, dtype, {size}, 1}, t, device));
  if (!t.contiguous()) return wrong(name, "is not contiguous");
  return {};
}

Status check_lists(const Problem& p, const AttentionTensors& t, Device device) {
  const std::optional<ListShape> lists = list_shape(p);
  FOVEA_CHECK(check_presence("block_counts", t.block_counts, lists.has_value()));
  FOVEA_CHECK(check_presence("block_indices", t.block_indices, lists.has_value()));
  FOVEA_CHECK(check_presence("block_partial", t.block_partial, lists && lists->partial));
  if (!lists) return {};
  const int64_t rows = (p.seq_q + lists->block_q - 1) / lists->block_q;
  const std::pair<Expected, const TensorView*> tensors[] = {
      {{"block_counts", kI32, {lists->batch, lists->heads, rows}, 3}, &t.block_counts},
      {{"block_indices", kI32, {lists->batch, lists->heads, rows, lists->most}, 4},
       &t.block_indices}};
  for (const auto& [expected, view] : tensors) {
    FOVEA_CHECK(check_one(expected, *view, device));
    if (!view->contiguous()) return wrong(expected.name, "is not contiguous");
  }
  if (lists->partial) {
    FOVEA_CHECK(
        check_one({"block_partial", kU8, {lists->batch, lists->heads, rows, lists->most}, 4},
                  t.block_partial, device));
    if (!t.block_partial.contiguous()) return wrong("block_partial", "is not contiguous");
  }
  return {};
}

Expected expected_out(const Problem& p) {
  return heads_tensor("out", p.out_dtype, p.out_layout, p.batch, p.seq_q, p.heads_q, p.dim_v);
}
Expected expected_lse(const Problem& p) {
  if (p.layout == Layout::packed) return {"lse", kF32, {p.heads_q, p.seq_q}, 2};
  return {"lse", kF32, {p.batch, p.heads_q, p.seq_q}, 3};
}

// The memory of the tensors of a call, in the order of kTensorMembers; none of those that are
// absent.
using Ranges = std::array<MemoryRange, std::size(kTensorMembers)>;
Ranges memory_of(const AttentionTensors& t) {
  Ranges ranges;
  for (size_t i = 0; i < ranges.size(); ++i)
    if (const TensorView& view = t.*kTensorMembers[i].view; view.data != nullptr)
      ranges[i] = memory_range(view);
  return ranges;
}

Status check_output(const Expected& e, const TensorView& t, const Ranges& ranges, Device device) {
  FOVEA_CHECK(check_one(e, t, device));
  if (!t.contiguous()) return wrong(e.name, "is not contiguous");
  const MemoryRange own = memory_range(t);
  for (size_t i = 0; i < ranges.size(); ++i)
    if (!kTensorMembers[i].output && own.overlaps(ranges[i]))
      return wrong(e.name, std::string("overlaps the memory of ") + kTensorMembers[i].name);
  return {};
}

}  // namespace

Status check_inputs(const Problem& p, const AttentionTensors& t, Device device) {
  if (t.prepared != nullptr) return wrong("prepared tensors", "are given, but the plan reads none");
  struct Head {
    std::string_view name;
    const TensorView* view;
    const Strides* strides;
    int64_t seq, heads, dim;
  };
  const Head heads[] = {{"q", &t.q, &p.q_strides, p.seq_q, p.heads_q, p.head_dim},
                        {"k", &t.k, &p.k_strides, p.seq_kv, p.heads_kv, p.head_dim},
                        {"v", &t.v, &p.v_strides, p.seq_kv, p.heads_kv, p.dim_v}};
  for (const Head& h : heads) {
    const Expected e = heads_tensor(h.name, p.dtype, p.layout, p.batch, h.seq, h.heads, h.dim);
    FOVEA_CHECK(check_one(e, *h.view, device));
    FOVEA_CHECK(check_strides(e, *h.view, p.layout, *h.strides));
  }
  const bool packed = p.layout == Layout::packed;
  FOVEA_CHECK(check_mask(p, t.mask, device));
  FOVEA_CHECK(check_vector("kv_lengths", t.kv_lengths, p.has_kv_lengths, p.batch, true, device));
  FOVEA_CHECK(check_vector("cu_seqlens_q", t.cu_seqlens_q, packed, p.documents + 1, false, device));
  FOVEA_CHECK(
      check_vector("cu_seqlens_kv", t.cu_seqlens_kv, packed, p.documents + 1, false, device));
  return check_lists(p, t, device);
}

Status check_tensors(const Problem& p, const AttentionTensors& t, Device device, size_t alignment) {
  FOVEA_CHECK(check_inputs(p, t, device));
  const std::pair<std::string_view, const TensorView*> aligned[] = {
      {"q", &t.q}, {"k", &t.k}, {"v", &t.v}, {"out", &t.out}};
  for (const auto& [name, view] : aligned)
    if (reinterpret_cast<uintptr_t>(view->data) % alignment != 0)
      return wrong(name, "is not aligned to " + std::to_string(alignment) + " bytes");
  const Ranges ranges = memory_of(t);
  FOVEA_CHECK(check_output(expected_out(p), t.out, ranges, device));
  FOVEA_CHECK(check_presence("lse", t.lse, p.lse));
  if (!p.lse) return {};
  FOVEA_CHECK(check_output(expected_lse(p), t.lse, ranges, device));
  if (may_overlap(t.out, t.lse)) return wrong("lse", "overlaps the memory of out");
  return {};
}

PlannedTensors::PlannedTensors(const Problem& planned, Device device, size_t alignment)
    : problem_(planned), device_(device), alignment_(alignment) {
  const Problem& p = problem_;
  several_forms_ = p.mask.kind != MaskKind::none || list_shape(p).has_value();
  const auto expect = [&](TensorView AttentionTensors::*member, const Expected& e,
                          const Strides* strides) {
    TensorView view = make_view(nullptr, e.dtype, e.sizes(), device);
    if (strides != nullptr) {
      const std::array<int64_t, 4> steps = strides_of(p.layout, *strides);
      std::copy_n(steps.begin(), e.rank, view.stride.begin());
    }
    for (size_t i = 0; i < views_.size(); ++i)
      if (kTensorMembers[i].view == member) {
        views_[i] = view;
        bytes_[i] = memory_range(view).bytes;
      }
  };
  const auto heads = [&](int64_t seq, int64_t count, int64_t dim) {
    return heads_tensor({}, p.dtype, p.layout, p.batch, seq, count, dim);
  };
  expect(&AttentionTensors::q, heads(p.seq_q, p.heads_q, p.head_dim), &p.q_strides);
  expect(&AttentionTensors::k, heads(p.seq_kv, p.heads_kv, p.head_dim), &p.k_strides);
  expect(&AttentionTensors::v, heads(p.seq_kv, p.heads_kv, p.dim_v), &p.v_strides);
  if (p.has_kv_lengths) expect(&AttentionTensors::kv_lengths, {{}, kI32, {p.batch}, 1}, nullptr);
  if (p.layout == Layout::packed) {
    const Expected offsets{{}, kI32, {p.documents + 1}, 1};
    expect(&AttentionTensors::cu_seqlens_q, offsets, nullptr);
    expect(&AttentionTensors::cu_seqlens_kv, offsets, nullptr);
  }
  expect(&AttentionTensors::out, expected_out(p), nullptr);
  if (p.lse) expect(&AttentionTensors::lse, expected_lse(p), nullptr);
}

bool PlannedTensors::plainly_right(const AttentionTensors& t) const noexcept {
  if (several_forms_ || t.prepared != nullptr) return false;
  Ranges ranges;
  for (size_t i = 0; i < views_.size(); ++i) {
    const TensorView &view = t.*kTensorMembers[i].view, &planned = views_[i];
    if (view.rank != planned.rank) return false;
    if (planned.rank == 0) {
      if (view.present()) return false;
      continue;
    }
    if (view.data == nullptr || view.device != planned.device || view.dtype != planned.dtype ||
        view.shape != planned.shape || view.stride != planned.stride)
      return false;
    ranges[i] = {reinterpret_cast<uintptr_t>(view.data), bytes_[i]};
  }
  const auto misaligned = [&](const TensorView& view) {
    return reinterpret_cast<uintptr_t>(view.data) % alignment_ != 0;
  };
  if (misaligned(t.q) || misaligned(t.k) || misaligned(t.v) || misaligned(t.out)) return false;
  for (size_t out = 0; out < ranges.size(); ++out) {
    if (!kTensorMembers[out].output) continue;
    for (size_t i = 0; i < out; ++i)
      if (ranges[out].overlaps(ranges[i])) return false;
  }
  return true;
}

Status PlannedTensors::check(const AttentionTensors& t) const {
  return plainly_right(t) ? Status{} : check_tensors(problem_, t, device_, alignment_);
}

Status check_workspace(Workspace workspace, size_t needed) {
  if (needed == 0) return {};
  if (workspace.data == nullptr || workspace.bytes < needed)
    return Error{ErrorCode::workspace_too_small,
                 "the workspace has " +
                     std::to_string(workspace.data == nullptr ? 0 : workspace.bytes) +
                     " bytes; the plan needs " + std::to_string(needed),
                 {}};
  if (reinterpret_cast<uintptr_t>(workspace.data) % Plan::kWorkspaceAlignment != 0)
    return Error{
        ErrorCode::invalid_argument,
        "the workspace is not aligned to " + std::to_string(Plan::kWorkspaceAlignment) + " bytes",
        {}};
  return {};
}

}  // namespace fovea::backends
