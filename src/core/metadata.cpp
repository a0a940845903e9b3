// Metadata into the form that kernels read. Every rule is checked and every contradiction reported;
// nothing is read from a tensor.
#include "fovea/metadata.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/core/checked_math.hpp"
#include "src/core/mask_mode.hpp"
#include "src/core/strides.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using std::string_view;
using text::concat;

// Keys and values in the type of the call, and in others.
constexpr std::array<string_view, 2> kOwnTypes = {"auto", "float"};
constexpr std::array<string_view, 3> kStoredTypes = {"fp8", "mxfp8", "mxfp4"};

// Tokens of one video; saturates.
int64_t tokens(const VideoGrid& grid) noexcept {
  return saturating_product({grid.frames, grid.height, grid.width});
}

bool positive(const VideoGrid& grid) noexcept {
  return grid.frames > 0 && grid.height > 0 && grid.width > 0;
}

class Normaliser {
 public:
  Normaliser(const Problem& problem, const AttentionMetadata& metadata)
      : p_(problem), m_(metadata) {}

  Result<NormalForm> run() {
    form_.problem = p_;
    form_.input_layout = p_.layout;
    read_padding();
    read_prefix();
    read_mask();
    read_video();
    read_stored_type();
    read_laser_scale();
    read_spans();
    if (!reasons_.empty())
      return Error{ErrorCode::invalid_argument, concat("attention: ", sentence(reasons_)),
                   std::move(reasons_)};
    FOVEA_CHECK(validate(form_.problem));
    return std::move(form_);
  }

 private:
  void refuse(string_view field, std::string got, std::string accepted, std::string remedy = {}) {
    reasons_.push_back({ReasonCode::metadata, std::string(field), std::move(got),
                        std::move(accepted), std::move(remedy)});
  }

  // False, with a refusal, unless 0 <= value <= most.
  bool in_range(string_view field, int64_t value, int64_t most) {
    if (value >= 0 && value <= most) return true;
    refuse(field, std::to_string(value), concat("0..", most));
    return false;
  }

  bool packed() const noexcept { return p_.layout == Layout::packed; }

  // --- one row of tokens and padding

  void read_padding() {
    if (packed()) form_.packing_mode = PackingMode::multi_document;
    if (!m_.packed_padding) return;
    form_.packing_mode = PackingMode::packed_padding;
    const PackedPadding& padding = *m_.packed_padding;
    bool fits = in_range("packed_padding.q_length", padding.q_length, p_.seq_q);
    fits = in_range("packed_padding.kv_length", padding.kv_length, p_.seq_kv) && fits;
    if (p_.has_kv_lengths) refuse("packed_padding", "given beside kv_lengths", "one of the two");
    if (p_.sparse)
      refuse("packed_padding", "given beside a sparse pattern", "dense attention",
             "cut the tensors to the valid tokens");
    if (packed()) {
      check_padding_documents(padding);
      return;
    }
    if (p_.batch != 1)
      refuse("packed_padding", concat("given for a batch of ", p_.batch), "batch 1");
    if (p_.out_layout != Layout::bshd)
      refuse("packed_padding", concat("given with output layout ", name(p_.out_layout)), "bshd");
    if (fits && p_.batch == 1 && p_.out_layout == Layout::bshd) make_documents(padding);
  }

  // Documents that the caller has cut: the tokens, and the padding if there is any.
  void check_padding_documents(const PackedPadding& padding) {
    if (p_.documents < 1 || p_.documents > 2)
      refuse("packed_padding", concat("given for ", p_.documents, " documents"),
             "1 or 2: the tokens and the padding");
    if (p_.document_values.empty()) return;
    const Document& first = p_.document_values.front();
    if (first != Document{padding.q_length, padding.kv_length})
      refuse("packed_padding", concat(padding.q_length, " and ", padding.kv_length),
             concat("the first document, ", first.seq_q, " and ", first.seq_kv));
  }

  // Three documents: the tokens; the queries of the padding, without keys; its keys, without
  // queries. The lengths stay out of the problem, so that one plan serves them all.
  void make_documents(const PackedPadding& padding) {
    constexpr int64_t kMost = 2147483647;
    if (p_.seq_q > kMost || p_.seq_kv > kMost) {
      refuse("packed_padding", concat("given for ", std::max(p_.seq_q, p_.seq_kv), " tokens"),
             concat("at most ", kMost));
      return;
    }
    Problem& p = form_.problem;
    const Strides q = p.q_strides, k = p.k_strides, v = p.v_strides;
    p.layout = p.out_layout = Layout::packed;
    p.documents = 3;
    p.max_document_q = p.seq_q;
    p.max_document_kv = p.seq_kv;
    name_strides(p, q, k, v);
    if (p.strides_kind == StridesKind::custom)
      p.q_strides.batch = p.k_strides.batch = p.v_strides.batch = 0;
    const auto q_length = static_cast<int32_t>(padding.q_length);
    const auto q_total = static_cast<int32_t>(p_.seq_q);
    const auto kv_length = static_cast<int32_t>(padding.kv_length);
    form_.documents = true;
    form_.starts_q = {0, q_length, q_total, q_total};
    form_.starts_kv = {0, kv_length, kv_length, static_cast<int32_t>(p_.seq_kv)};
  }

  // --- a prefix of the keys

  void read_prefix() {
    visible_keys_ = p_.seq_kv;
    if (m_.packed_padding) visible_keys_ = m_.packed_padding->kv_length;
    if (m_.valid_kv_length) read_valid_length(*m_.valid_kv_length);
    if (in_range("protected_kv_prefix", m_.protected_kv_prefix, visible_keys_))
      form_.protected_kv_prefix = m_.protected_kv_prefix;
  }

  void read_valid_length(int64_t length) {
    constexpr string_view kField = "valid_kv_length";
    if (!in_range(kField, length, p_.seq_kv)) return;
    if (p_.has_kv_lengths) {
      refuse(kField, concat(length, " beside kv_lengths"), "one of the two");
      return;
    }
    if (m_.packed_padding) {
      if (length != m_.packed_padding->kv_length)
        refuse(kField, std::to_string(length),
               concat("packed_padding.kv_length, ", m_.packed_padding->kv_length));
      return;
    }
    if (packed()) {
      refuse(kField, concat(length, " for packed documents"), "none: documents have lengths");
      return;
    }
    visible_keys_ = length;
    if (length == p_.seq_kv) return;
    Problem& p = form_.problem;
    if (p_.sparse) {
      // Patterns and lists are over all keys: lengths hide the others inside them.
      form_.lengths.assign(static_cast<size_t>(p.batch), length);
      p.has_kv_lengths = true;
      return;
    }
    const Strides q = p.q_strides, k = p.k_strides, v = p.v_strides;
    form_.kv_prefix = p.seq_kv = length;
    name_strides(p, q, k, v);
  }

  // --- the mask tensor

  // What is published of a mask is read where there is one.
  void read_mask() {
    if (p_.mask.kind == MaskKind::none) {
      form_.mask_mode = form_.problem.has_kv_lengths ? MaskMode::padding : MaskMode::none;
      return;
    }
    if (m_.mask_mode == MaskMode::unknown) {
      refuse("mask_mode", "unknown", "none, padding, arbitrary; leave it out when not known");
      return;
    }
    if (m_.mask_mode == MaskMode::none) {
      drop_mask();
      if (form_.problem.has_kv_lengths) form_.mask_mode = MaskMode::padding;
      return;
    }
    if (m_.packed_padding) {
      // The lengths say what the mask says; kernels read the lengths.
      if (m_.mask_mode == MaskMode::padding)
        drop_mask();
      else
        refuse("packed_padding", "given beside a mask that is not declared to be padding",
               "mask_mode padding or none, or no mask");
      return;
    }
    // A video layout states that the mask is padding.
    form_.mask_mode =
        m_.mask_mode.value_or(m_.video_layout ? MaskMode::padding : unpublished_mask_mode(p_));
  }

  void drop_mask() {
    form_.drop_mask = true;
    form_.problem.mask = MaskTensor{};
  }

  // --- videos

  void read_video() {
    if (!m_.video_layout) return;
    const VideoLayout& layout = *m_.video_layout;
    if (m_.mask_mode == MaskMode::arbitrary && p_.mask.kind != MaskKind::none)
      refuse("video_layout", "given beside an arbitrary mask",
             "a mask that hides padding behind the video only");
    if (!in_range("video_layout.prefix_length", layout.prefix_length, visible_keys_)) return;
    if (layout.grid.has_value() == !layout.spans.empty()) {
      refuse("video_layout", layout.grid ? "one grid and several spans" : "without a video",
             "one of grid and spans");
      return;
    }
    const int64_t used = layout.grid ? one_video(layout) : several_videos(layout);
    if (used < 0) return;
    if (used > visible_keys_) {
      refuse("video_layout", concat(used, " used tokens"),
             concat("at most the ", visible_keys_, " keys that are seen"));
      return;
    }
    form_.used_length = used;
  }

  // The used tokens, or -1 after a refusal.
  int64_t one_video(const VideoLayout& layout) {
    if (!positive(*layout.grid)) {
      refuse("video_layout.grid", grid_text(*layout.grid), "sizes above 0");
      return -1;
    }
    const int64_t used = saturating_add(layout.prefix_length, tokens(*layout.grid));
    if (layout.used_length == 0 || layout.used_length == used) return used;
    refuse("video_layout.used_length", std::to_string(layout.used_length),
           concat(used, ", the prefix and the grid, or nothing"));
    return -1;
  }

  int64_t several_videos(const VideoLayout& layout) {
    int64_t end = layout.prefix_length;
    for (size_t i = 0; i < layout.spans.size(); ++i) {
      const VideoSpan& span = layout.spans[i];
      const std::string field = concat("video_layout.spans[", i, "]");
      if (!positive(span.grid)) {
        refuse(field, grid_text(span.grid), "sizes above 0");
        return -1;
      }
      if (span.begin < end) {
        refuse(field, concat("at ", span.begin), concat(end, " or behind: in order, apart"));
        return -1;
      }
      end = saturating_add(span.begin, tokens(span.grid));
    }
    if (end <= layout.used_length) return layout.used_length;
    refuse("video_layout.used_length", std::to_string(layout.used_length),
           concat(end, " or more, the end of the last video"));
    return -1;
  }

  static std::string grid_text(const VideoGrid& grid) {
    return concat(grid.frames, 'x', grid.height, 'x', grid.width);
  }

  void read_stored_type() {
    const std::string& type = m_.kv_cache_dtype;
    const auto among = [&](const auto& types) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    if (type.empty() || among(kOwnTypes)) return;
    if (among(kStoredTypes))
      form_.kv_cache_dtype = type;
    else
      refuse("kv_cache_dtype", text::quote(type),
             concat(text::join(kOwnTypes), ", ", text::join(kStoredTypes)));
  }

  void read_laser_scale() {
    if (!m_.laser_input_scale) return;
    if (std::isfinite(*m_.laser_input_scale) && *m_.laser_input_scale > 0) return;
    refuse("laser_input_scale", text::format_number(*m_.laser_input_scale),
           "a finite number above 0");
  }

  // --- mixed causal and full attention

  void read_spans() {
    if (!m_.full_attn_spans) {
      if (!m_.query_ranges.empty())
        refuse("query_ranges", "given without full_attn_spans",
               "full_attn_spans, which may be empty");
      return;
    }
    const std::pair<bool, string_view> others[] = {
        {packed(), "packed documents"},
        {m_.packed_padding.has_value(), "packed_padding"},
        {p_.window != Window{}, "a window"},
        {p_.has_kv_lengths, "kv_lengths"},
        {m_.valid_kv_length.has_value(), "valid_kv_length"},
        {p_.sparse.has_value(), "a sparse pattern"}};
    bool alone = true;
    for (const auto& [given, what] : others) {
      if (!given) continue;
      refuse("full_attn_spans", concat("given beside ", what), "a mask tensor at most",
             "hide keys with a mask");
      alone = false;
    }
    if (!check_spans() || !check_ranges() || !alone) return;
    form_.problem.causal = false;
    if (m_.query_ranges.empty()) add_pieces(p_.seq_kv - p_.seq_q, p_.seq_q);
    for (const QueryRange& range : m_.query_ranges)
      add_pieces(range.global_begin, range.local_end - range.local_begin);
  }

  bool check_spans() {
    int64_t end = 0;
    for (size_t i = 0; i < m_.full_attn_spans->size(); ++i) {
      const Span& span = (*m_.full_attn_spans)[i];
      if (span.begin >= end && span.end > span.begin && span.end <= p_.seq_kv) {
        end = span.end;
        continue;
      }
      refuse(concat("full_attn_spans[", i, "]"), concat('[', span.begin, ", ", span.end, ')'),
             concat("spans of 1 key or more in ", end, "..", p_.seq_kv, ", in order, apart"));
      return false;
    }
    return true;
  }

  bool check_ranges() {
    int64_t row = 0;
    for (size_t i = 0; i < m_.query_ranges.size(); ++i) {
      const QueryRange& range = m_.query_ranges[i];
      const bool fits = range.local_begin == row && range.local_end > row &&
                        range.local_end <= p_.seq_q && range.global_begin >= 0 &&
                        range.global_begin <= p_.seq_kv - (range.local_end - row);
      if (!fits) {
        refuse(concat("query_ranges[", i, "]"),
               concat('[', range.local_begin, ", ", range.local_end, ") at ", range.global_begin),
               concat("rows from ", row, " to at most ", p_.seq_q, " at positions 0..", p_.seq_kv));
        return false;
      }
      row = range.local_end;
    }
    if (m_.query_ranges.empty() || row == p_.seq_q) return true;
    refuse("query_ranges", concat("for ", row, " rows"), concat("all ", p_.seq_q, " rows"));
    return false;
  }

  // The rows at positions begin .. begin + rows - 1, cut where spans begin and end.
  void add_pieces(int64_t begin, int64_t rows) {
    const int64_t end = begin + rows;
    int64_t at = begin;
    for (const Span& span : *m_.full_attn_spans) {
      if (span.end <= at) continue;
      if (span.begin >= end) break;
      add_piece(span.begin - at, span.begin, true);
      at = std::max(at, span.begin);
      add_piece(std::min(span.end, end) - at, span.end, false);
      at = std::min(span.end, end);
    }
    add_piece(end - at, end, true);
  }

  void add_piece(int64_t rows, int64_t keys, bool causal) {
    if (rows > 0) form_.problem.pieces.push_back({rows, keys, causal});
  }

  const Problem& p_;
  const AttentionMetadata& m_;
  NormalForm form_;
  std::vector<Reason> reasons_;
  int64_t visible_keys_ = 0;  // keys that a length leaves
};

// [1,S,H,D] in either order of axes as [S,H,D].
TensorView without_batch(TensorView view, Layout layout) noexcept {
  if (view.rank != 4) return view;
  const size_t seq = layout == Layout::bhsd ? 2 : 1;
  const size_t head = 3 - seq;
  view.rank = 3;
  const auto from = view;
  view.shape = {from.shape[seq], from.shape[head], from.shape[3]};
  view.stride = {from.stride[seq], from.stride[head], from.stride[3]};
  return view;
}

// Numbers of the form as a tensor. Views have no const; nothing writes through these.
template <class Numbers>
TensorView vector_view(const Numbers& numbers, DType dtype) noexcept {
  TensorView view;
  view.data = const_cast<typename Numbers::value_type*>(numbers.data());
  view.dtype = dtype;
  view.rank = 1;
  view.shape = {static_cast<int64_t>(numbers.size())};
  view.stride = {1};
  return view;
}

}  // namespace

std::string_view name(VideoRole role) noexcept {
  switch (role) {
    case VideoRole::target:
      return "target";
    case VideoRole::reference:
      return "reference";
  }
  return "unknown";
}

Result<NormalForm> normalise(const Problem& problem, const AttentionMetadata& metadata) {
  return Normaliser(problem, metadata).run();
}

AttentionTensors apply(const NormalForm& form, const AttentionTensors& tensors) noexcept {
  AttentionTensors t = tensors;
  if (form.drop_mask) t.mask = {};
  if (form.kv_prefix) {
    const size_t seq = form.problem.layout == Layout::bhsd ? 2 : 1;
    t.k.shape[seq] = t.v.shape[seq] = *form.kv_prefix;
    if (t.mask.present()) t.mask.shape[static_cast<size_t>(t.mask.rank - 1)] = *form.kv_prefix;
  }
  if (!form.lengths.empty()) t.kv_lengths = vector_view(form.lengths, kI64);
  if (form.documents) {
    t.q = without_batch(t.q, form.input_layout);
    t.k = without_batch(t.k, form.input_layout);
    t.v = without_batch(t.v, form.input_layout);
    t.out = without_batch(t.out, Layout::bshd);
    if (t.lse.rank == 3) {
      t.lse.rank = 2;
      t.lse.shape = {t.lse.shape[1], t.lse.shape[2]};
      t.lse.stride = {t.lse.stride[1], t.lse.stride[2]};
    }
    t.cu_seqlens_q = vector_view(form.starts_q, kI32);
    t.cu_seqlens_kv = vector_view(form.starts_kv, kI32);
  }
  return t;
}

void describe_context(const NormalForm& form, const AttentionMetadata& metadata,
                      ExecutionContext& context) {
  context.dtype = form.problem.dtype;
  context.causal = form.problem.causal;
  context.mask_mode = form.mask_mode;
  context.packing_mode = form.packing_mode;
  context.piecewise = !form.problem.pieces.empty();
  if (!context.paged_kv) context.kv_cache_dtype = form.kv_cache_dtype;
  context.host_documents = form.documents;
  context.host_lengths = !form.lengths.empty();
  context.npu_attn_varlen = metadata.npu_attn_varlen;
  context.laser_input_scale = metadata.laser_input_scale;
  context.protected_kv_prefix = form.protected_kv_prefix;
  context.video_layout = metadata.video_layout;
}

}  // namespace fovea
