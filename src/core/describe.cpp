// From the tensors of a call to a Problem. Whatever the contract calls an argument error is found
// here or in validate().

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "fovea/attention.hpp"
#include "src/core/cu_seqlens.hpp"
#include "src/core/list_shape.hpp"
#include "src/core/strides.hpp"
#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using std::string_view;
using text::concat;

constexpr int32_t kMaxAlignment = 64;

Error refuse(ErrorCode code, const std::string& message) {
  return {code, concat("attention: ", message), {}};
}

Error refuse_tensor(string_view name, const TensorView& view, const std::string& what) {
  return refuse(ErrorCode::invalid_tensor, concat(name, ' ', to_string(view), ": ", what));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (int64_t size : shape) out += concat(out.empty() ? "[" : ",", size);
  return out + ']';
}

string_view axes_text(Layout layout) noexcept {
  switch (layout) {
    case Layout::bshd:
      return "[batch,seq,heads,dim]";
    case Layout::bhsd:
      return "[batch,heads,seq,dim]";
    case Layout::packed:
      return "[tokens,heads,dim]";
  }
  return "";
}

// Sizes and strides of q, k or v by meaning instead of position.
struct Operand {
  int64_t batch, seq, heads, dim;
  Strides strides;
};

Operand operand(const TensorView& view, Layout layout) noexcept {
  const auto& n = view.shape;
  const auto& s = view.stride;
  switch (layout) {
    case Layout::bshd:
      return {n[0], n[1], n[2], n[3], {s[0], s[1], s[2]}};
    case Layout::bhsd:
      return {n[0], n[2], n[1], n[3], {s[0], s[2], s[1]}};
    case Layout::packed:
      return {1, n[0], n[1], n[2], {0, s[0], s[1]}};
  }
  return {};
}

class Describer {
 public:
  Describer(const AttentionTensors& tensors, const CallOptions& options)
      : t_(tensors), o_(options) {}

  Result<Problem> describe() {
    for (Status (Describer::*step)() :
         {&Describer::check_operands, &Describer::read_sizes, &Describer::read_options,
          &Describer::read_documents, &Describer::read_kv_lengths, &Describer::read_mask,
          &Describer::read_block_lists})
      FOVEA_CHECK((this->*step)());
    read_strides();
    if (Status status = validate(p_); !status) {
      constexpr string_view kPrefix = "problem: ";
      string_view message = status.error().message;
      if (message.starts_with(kPrefix)) message.remove_prefix(kPrefix.size());
      Error error = refuse(ErrorCode::invalid_argument, std::string(message));
      error.reasons = std::move(status).error().reasons;
      return error;
    }
    FOVEA_CHECK(check_outputs());
    return std::move(p_);
  }

 private:
  // Memory, and the device of q.
  Status check_input(string_view name, const TensorView& view) const {
    FOVEA_CHECK(check_memory(name, view));
    if (view.device != t_.q.device)
      return refuse_tensor(name, view,
                           concat("it is on ", to_string(view.device), ", q is on ",
                                  to_string(t_.q.device), " (accepted: one device for all)"));
    return {};
  }

  Status check_operands() {
    const std::pair<string_view, const TensorView*> operands[] = {
        {"q", &t_.q}, {"k", &t_.k}, {"v", &t_.v}};
    const int32_t rank = o_.input_layout == Layout::packed ? 3 : 4;
    for (const auto& [name, view] : operands) {
      if (!view->present())
        return refuse(ErrorCode::invalid_tensor, concat(name, " is absent (pass q, k and v)"));
      if (view->rank != rank)
        return refuse(
            ErrorCode::invalid_tensor,
            concat(name, " has rank ", view->rank, " (accepted: ", rank, ' ',
                   axes_text(o_.input_layout), " in layout ", fovea::name(o_.input_layout), ")"));
      FOVEA_CHECK(check_input(name, *view));
      const bool known = view->dtype == kF32 || view->dtype == kF16 || view->dtype == kBF16;
      if (!known)
        return refuse_tensor(
            name, *view,
            concat("its element type is ", type_text(view->dtype), " (accepted: f32, f16, bf16)"));
      if (view->dtype != t_.q.dtype)
        return refuse_tensor(name, *view,
                             concat("its element type differs from q's, ", fovea::name(t_.q.dtype),
                                    " (accepted: one type for q, k and v; convert one)"));
      FOVEA_CHECK(check_last_axis(name, *view));
    }
    return {};
  }

  static std::string type_text(DType dtype) {
    const string_view known = fovea::name(dtype);
    return known == "unknown"
               ? concat("unknown (code ", int{dtype.code}, ", ", int{dtype.bits}, " bits)")
               : std::string(known);
  }

  static Status check_last_axis(string_view name, const TensorView& view) {
    const auto last = static_cast<size_t>(view.rank - 1);
    if (view.shape[last] > 1 && view.stride[last] != 1)
      return refuse_tensor(name, view,
                           concat("its last axis has stride ", view.stride[last],
                                  " (accepted: 1; make the last axis contiguous)"));
    return {};
  }

  Status read_sizes() {
    q_ = operand(t_.q, o_.input_layout);
    k_ = operand(t_.k, o_.input_layout);
    v_ = operand(t_.v, o_.input_layout);
    struct Pair {
      string_view tensor, size;
      int64_t got;
      string_view other;
      int64_t accepted;
    };
    const Pair pairs[] = {{"k", "batch", k_.batch, "q", q_.batch},
                          {"v", "batch", v_.batch, "q", q_.batch},
                          {"k", "head_dim", k_.dim, "q", q_.dim},
                          {"v", "seq_kv", v_.seq, "k", k_.seq},
                          {"v", "heads_kv", v_.heads, "k", k_.heads}};
    for (const Pair& pair : pairs)
      if (pair.got != pair.accepted)
        return refuse_tensor(
            pair.tensor, pair.tensor == "k" ? t_.k : t_.v,
            concat(pair.size, " is ", pair.got, ", but ", pair.other, " has ", pair.accepted,
                   " (layout ", name(o_.input_layout), ' ', axes_text(o_.input_layout), ")"));
    p_.dtype = t_.q.dtype;
    p_.batch = q_.batch;
    p_.heads_q = q_.heads;
    p_.heads_kv = k_.heads;
    p_.seq_q = q_.seq;
    p_.seq_kv = k_.seq;
    p_.head_dim = q_.dim;
    p_.dim_v = v_.dim;
    return {};
  }

  Status read_options() {
    p_.layout = o_.input_layout;
    p_.out_layout = o_.output_layout.value_or(o_.input_layout);
    p_.causal = o_.is_causal.value_or(false);
    p_.window = o_.window;
    p_.scale = o_.scale;
    p_.lse = o_.return_lse || t_.lse.present();
    p_.out_dtype = o_.out_dtype.value_or(t_.out.present() ? t_.out.dtype : t_.q.dtype);
    return {};
  }

  Status read_documents() {
    const bool given = t_.cu_seqlens_q.present() || t_.cu_seqlens_kv.present();
    if (p_.layout != Layout::packed) {
      if (given)
        return refuse(ErrorCode::invalid_argument,
                      concat("cu_seqlens_q and cu_seqlens_kv belong to input_layout packed, it is ",
                             name(p_.layout)));
      return {};
    }
    FOVEA_CHECK(check_boundaries("cu_seqlens_q", t_.cu_seqlens_q));
    FOVEA_CHECK(check_boundaries("cu_seqlens_kv", t_.cu_seqlens_kv));
    if (t_.cu_seqlens_q.shape[0] != t_.cu_seqlens_kv.shape[0])
      return refuse_tensor("cu_seqlens_kv", t_.cu_seqlens_kv,
                           concat("cu_seqlens_q has ", t_.cu_seqlens_q.shape[0],
                                  " entries (accepted: as many, one document each)"));
    p_.documents = t_.cu_seqlens_q.shape[0] - 1;
    FOVEA_TRY(p_.max_document_q,
              longest("cu_seqlens_q", t_.cu_seqlens_q, "max_seqlen_q", o_.max_seqlen_q, p_.seq_q));
    FOVEA_TRY(p_.max_document_kv, longest("cu_seqlens_kv", t_.cu_seqlens_kv, "max_seqlen_kv",
                                          o_.max_seqlen_kv, p_.seq_kv));
    return {};
  }

  Status check_boundaries(string_view name, const TensorView& view) const {
    if (!view.present())
      return refuse(
          ErrorCode::invalid_argument,
          concat(name, " is absent, the packed layout needs it (int32, [documents + 1])"));
    FOVEA_CHECK(check_input(name, view));
    if (view.rank != 1 || view.dtype != kI32 || view.shape[0] < 1 || !view.contiguous())
      return refuse_tensor(name, view,
                           "it does not fit (accepted: i32 [documents + 1], contiguous)");
    return {};
  }

  // The longest document: read on the CPU, stated by the caller on a device.
  Result<int64_t> longest(string_view name, const TensorView& view, string_view option,
                          int64_t stated, int64_t tokens) const {
    if (stated < 0)
      return refuse(ErrorCode::invalid_argument,
                    concat(option, " is ", stated, " (accepted: 0 or more)"));
    if (view.device.type != DeviceType::cpu) {
      if (stated == 0 && tokens > 0)
        return refuse(ErrorCode::invalid_argument,
                      concat(option, " is 0 (accepted: the longest document's length, because ",
                             name, " is on ", to_string(view.device), ")"));
      return std::min(stated, tokens);
    }
    FOVEA_TRY(const int64_t found, read_cu_seqlens(name, view, tokens));
    if (stated != 0 && stated < found)
      return refuse(ErrorCode::invalid_argument,
                    concat(option, " is ", stated, ", but ", name, " has a document of ", found,
                           " tokens (accepted: ", found, " or more, or 0 to read it)"));
    return found;
  }

  Status read_kv_lengths() {
    const TensorView& lengths = t_.kv_lengths;
    if (!lengths.present()) return {};
    p_.has_kv_lengths = true;
    FOVEA_CHECK(check_input("kv_lengths", lengths));
    const bool fits = lengths.rank == 1 && lengths.shape[0] == p_.batch &&
                      (lengths.dtype == kI32 || lengths.dtype == kI64) && lengths.contiguous();
    if (p_.layout != Layout::packed && !fits)
      return refuse_tensor("kv_lengths", lengths,
                           concat("it does not fit (accepted: i32 or i64 ", shape_text({p_.batch}),
                                  ", contiguous, one length per batch item)"));
    return {};
  }

  Status read_mask() {
    const TensorView& mask = t_.mask;
    if (!mask.present()) return {};
    if (p_.layout == Layout::packed)
      return refuse_tensor("mask", mask,
                           "the packed layout takes no mask tensor (documents are separated by "
                           "cu_seqlens; use is_causal or window inside them)");
    FOVEA_CHECK(check_input("mask", mask));
    const bool additive = mask.dtype == kF32 || mask.dtype == kF16 || mask.dtype == kBF16;
    const bool boolean =
        mask.dtype == kBool || mask.dtype == kU8 || mask.dtype == kI32 || mask.dtype == kI64;
    if (!additive && !boolean)
      return refuse_tensor("mask", mask,
                           concat("its element type is ", type_text(mask.dtype),
                                  " (accepted: bool, u8, i32 and i64 of 0 and 1: true attends; "
                                  "f32, f16, bf16: added to the scores)"));
    FOVEA_CHECK(check_mask_shape(mask));
    FOVEA_CHECK(check_last_axis("mask", mask));
    const auto size = [&](int32_t from_last) {
      return mask.shape[static_cast<size_t>(mask.rank - 1 - from_last)];
    };
    p_.mask.kind = mask.rank == 2 ? MaskKind::keys : additive ? MaskKind::bias : MaskKind::boolean;
    p_.mask.dtype = mask.dtype;
    p_.mask.per_batch = mask.shape[0] == p_.batch;
    p_.mask.per_query = mask.rank >= 3 && size(1) == p_.seq_q;
    p_.mask.per_head = mask.rank == 4 && size(2) != 1;
    return {};
  }

  Status check_mask_shape(const TensorView& mask) const {
    const auto& n = mask.shape;
    const int64_t b = p_.batch, h = p_.heads_q, sq = p_.seq_q, skv = p_.seq_kv;
    const auto either = [](int64_t size) {
      return size == 1 ? std::string("1") : concat("1|", size);
    };
    const std::string accepted =
        concat("accepted: keys [", either(b), ",", skv, "], or [", either(b), ",", either(sq), ",",
               skv, "], or [", either(b), ",", either(h), ",", either(sq), ",", skv, "]");
    if (mask.rank < 2 || mask.rank > 4)
      return refuse_tensor("mask", mask, concat("its rank is ", mask.rank, " (", accepted, ")"));
    const auto last = static_cast<size_t>(mask.rank - 1);
    if (mask.rank == 2 && n[1] == skv && n[0] != 1 && n[0] != b && n[0] == sq)
      return refuse_tensor("mask", mask,
                           concat("a mask of rank 2 is key padding, [", either(b), ",", skv,
                                  "]; for a mask per query pass ", shape_text({1, 1, sq, skv})));
    if (n[last] == 1 && skv != 1)
      return refuse_tensor(
          "mask", mask,
          concat("its last axis is 1, the key axis is never broadcast (", accepted, ")"));
    const auto fits = [](int64_t size, int64_t full) { return size == 1 || size == full; };
    const bool ok = n[last] == skv && fits(n[0], b) && (mask.rank != 3 || fits(n[1], sq)) &&
                    (mask.rank != 4 || (fits(n[1], h) && fits(n[2], sq)));
    if (!ok) return refuse_tensor("mask", mask, concat("its shape does not fit (", accepted, ")"));
    return {};
  }

  Status read_block_lists() {
    const TensorView& counts = t_.block_counts;
    const TensorView& indices = t_.block_indices;
    if (!counts.present() && !indices.present()) return {};
    if (!counts.present() || !indices.present())
      return refuse(ErrorCode::invalid_argument,
                    concat(counts.present() ? "block_indices" : "block_counts",
                           " is absent (accepted: both or none)"));
    ListShape lists{o_.block_q, o_.block_kv, 0, 1, 1};
    for (const auto& [field, size] :
         {std::pair("block_q", lists.block_q), std::pair("block_kv", lists.block_kv)})
      if (size != 64 && size != 128)
        return refuse(ErrorCode::invalid_argument,
                      concat(field, " is ", size, " (accepted: 64, 128)"));
    FOVEA_CHECK(check_input("block_counts", counts));
    FOVEA_CHECK(check_input("block_indices", indices));
    const int64_t rows = (p_.seq_q + lists.block_q - 1) / lists.block_q;
    const auto fits = [](int64_t size, int64_t full) { return size == 1 || size == full; };
    if (counts.rank != 3 || counts.dtype != kI32 || !counts.contiguous() ||
        !fits(counts.shape[0], p_.batch) || !fits(counts.shape[1], p_.heads_q) ||
        counts.shape[2] != rows)
      return refuse_tensor(
          "block_counts", counts,
          concat("it does not fit: ", p_.seq_q, " queries in blocks of ", lists.block_q, " are ",
                 rows, " (accepted: i32 [1|", p_.batch, ",1|", p_.heads_q, ",", rows,
                 "], contiguous; block_q says how many queries a block has)"));
    const bool same =
        indices.rank == 4 && indices.dtype == kI32 && indices.contiguous() &&
        std::equal(counts.shape.begin(), counts.shape.begin() + 3, indices.shape.begin());
    if (!same)
      return refuse_tensor("block_indices", indices,
                           concat("it does not fit (accepted: i32 [", counts.shape[0], ",",
                                  counts.shape[1], ",", rows, ",most], contiguous)"));
    lists.batch = counts.shape[0];
    lists.heads = counts.shape[1];
    lists.most = indices.shape[3];
    FOVEA_CHECK(read_block_classes(lists));
    p_.sparse = to_pattern(lists);
    return {};
  }

  Status read_block_classes(ListShape& lists) const {
    const TensorView& partial = t_.block_partial;
    if (!partial.present()) return {};
    FOVEA_CHECK(check_input("block_partial", partial));
    const bool same = partial.rank == 4 && partial.dtype == kU8 && partial.contiguous() &&
                      std::equal(partial.shape.begin(), partial.shape.begin() + 4,
                                 t_.block_indices.shape.begin());
    if (!same)
      return refuse_tensor("block_partial", partial,
                           "it does not fit (accepted: u8 in the shape of block_indices)");
    lists.partial = true;
    return {};
  }

  // Names the strides when they are of a known kind; strides that are never used do not count.
  void read_strides() {
    p_.alignment = kMaxAlignment;
    for (const TensorView* view : {&t_.q, &t_.k, &t_.v, &t_.out}) {
      const auto address = reinterpret_cast<uintptr_t>(view->data);
      if (address != 0)
        p_.alignment = std::min(p_.alignment, int32_t{1} << std::min(std::countr_zero(address), 6));
    }
    name_strides(p_, q_.strides, k_.strides, v_.strides);
  }

  Status check_outputs() const {
    FOVEA_TRY(const OutputSpecs specs, output_spec(p_));
    FOVEA_CHECK(check_output("out", t_.out, specs.out));
    FOVEA_CHECK(check_output("lse", t_.lse, specs.lse));
    if (t_.out.present() && t_.lse.present() && may_overlap(t_.out, t_.lse))
      return refuse_tensor("lse", t_.lse, "it overlaps out (accepted: memory of its own)");
    return {};
  }

  Status check_output(string_view name, const TensorView& view, const OutputSpec& spec) const {
    if (!view.present()) return {};
    FOVEA_CHECK(check_input(name, view));
    const bool same_shape = std::equal(spec.shape.begin(), spec.shape.end(), view.shape.begin(),
                                       view.shape.begin() + view.rank);
    if (!same_shape || view.dtype != spec.dtype)
      return refuse_tensor(name, view,
                           concat("it does not fit (accepted: ", fovea::name(spec.dtype),
                                  shape_text(spec.shape), ")"));
    if (!view.contiguous())
      return refuse_tensor(name, view, "it is not contiguous (accepted: contiguous memory)");
    const std::pair<string_view, const TensorView*> inputs[] = {
        {"q", &t_.q},
        {"k", &t_.k},
        {"v", &t_.v},
        {"mask", &t_.mask},
        {"kv_lengths", &t_.kv_lengths},
        {"cu_seqlens_q", &t_.cu_seqlens_q},
        {"cu_seqlens_kv", &t_.cu_seqlens_kv},
        {"block_counts", &t_.block_counts},
        {"block_indices", &t_.block_indices},
        {"block_partial", &t_.block_partial}};
    for (const auto& [input, other] : inputs)
      if (other->present() && may_overlap(view, *other))
        return refuse_tensor(name, view,
                             concat("it overlaps ", input, " (accepted: memory of its own)"));
    return {};
  }

  const AttentionTensors& t_;
  const CallOptions& o_;
  Problem p_;
  Operand q_{}, k_{}, v_{};
};

}  // namespace

Result<Problem> describe(const AttentionTensors& tensors, const CallOptions& options) {
  return Describer(tensors, options).describe();
}

}  // namespace fovea
