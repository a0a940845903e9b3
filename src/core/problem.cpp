#include "fovea/problem.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/core/checked_math.hpp"
#include "src/core/problem_names.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using text::concat;

constexpr int32_t kMaxAlignment = 64;

Strides contiguous_strides(Layout layout, int64_t seq, int64_t heads, int64_t dim) noexcept {
  const int64_t row = saturating_product({heads, dim});
  switch (layout) {
    case Layout::bshd:
      return {saturating_product({seq, row}), row, dim};
    case Layout::bhsd:
      return {saturating_product({seq, row}), dim, saturating_product({seq, dim})};
    case Layout::packed:
      return {0, row, dim};
  }
  return {};
}

// Strides of [B,H,S,D] storage, packed [H,T,D].
Strides head_major_strides(const Problem& p, int64_t seq, int64_t heads, int64_t dim) noexcept {
  Strides out = contiguous_strides(Layout::bhsd, seq, heads, dim);
  if (p.layout == Layout::packed) out.batch = 0;
  return out;
}

struct StrideSet {
  Strides q, k, v;
  bool operator==(const StrideSet&) const = default;
};

StrideSet strides_of_kind(const Problem& p) noexcept {
  switch (p.strides_kind) {
    case StridesKind::contig:
      return {contiguous_strides(p.layout, p.seq_q, p.heads_q, p.head_dim),
              contiguous_strides(p.layout, p.seq_kv, p.heads_kv, p.head_dim),
              contiguous_strides(p.layout, p.seq_kv, p.heads_kv, p.dim_v)};
    case StridesKind::fused_qkv: {
      // One row of storage holds q, k and v of a token.
      const int64_t width =
          saturating_add(saturating_product({p.heads_q, p.head_dim}),
                         saturating_product({p.heads_kv, saturating_add(p.head_dim, p.dim_v)}));
      const int64_t batch = p.layout == Layout::packed ? 0 : saturating_product({p.seq_q, width});
      return {{batch, width, p.head_dim}, {batch, width, p.head_dim}, {batch, width, p.dim_v}};
    }
    case StridesKind::bhsd_view:
      return {head_major_strides(p, p.seq_q, p.heads_q, p.head_dim),
              head_major_strides(p, p.seq_kv, p.heads_kv, p.head_dim),
              head_major_strides(p, p.seq_kv, p.heads_kv, p.dim_v)};
    case StridesKind::expanded:
      // One [S,D] matrix of keys and one of values serve every batch item and head.
      return {contiguous_strides(p.layout, p.seq_q, p.heads_q, p.head_dim),
              {0, p.head_dim, 0},
              {0, p.dim_v, 0}};
    case StridesKind::custom:
      break;
  }
  return {p.q_strides, p.k_strides, p.v_strides};
}

// An argument error about `field`, whose name the problem string reader turns into a column.
Error refuse(ReasonCode code, std::string_view field, std::string got, std::string accepted,
             std::string message) {
  return {ErrorCode::invalid_problem,
          concat("problem: ", message),
          {{code, std::string(field), std::move(got), std::move(accepted)}}};
}

Error refuse(ReasonCode code, std::string_view field, const std::string& got,
             const std::string& accepted) {
  return refuse(code, field, got, accepted,
                concat(field, ' ', got, " is not accepted (accepted: ", accepted, ")"));
}

Error too_large(ReasonCode code, std::string_view field, std::string_view tensor) {
  return refuse(code, field, "", "at most 2^63 - 1 bytes",
                concat("the size of ", tensor,
                       " in bytes does not fit in 64 bits (accepted: at most 2^63 - 1 bytes)"));
}

Status check_sizes(const Problem& p) {
  struct Size {
    ReasonCode code;
    std::string_view field;
    int64_t value;
    int64_t least;
  };
  const Size sizes[] = {{ReasonCode::seq_limit, "batch", p.batch, 0},
                        {ReasonCode::heads, "heads_q", p.heads_q, 1},
                        {ReasonCode::heads, "heads_kv", p.heads_kv, 1},
                        {ReasonCode::seq_limit, "seq_q", p.seq_q, 0},
                        {ReasonCode::seq_limit, "seq_kv", p.seq_kv, 0},
                        {ReasonCode::head_dim, "head_dim", p.head_dim, 1},
                        {ReasonCode::dim_v, "dim_v", p.dim_v, 1},
                        {ReasonCode::packed, "documents", p.documents, 0},
                        {ReasonCode::packed, "max_document_q", p.max_document_q, 0},
                        {ReasonCode::packed, "max_document_kv", p.max_document_kv, 0}};
  for (const Size& size : sizes)
    if (size.value < size.least)
      return refuse(size.code, size.field, std::to_string(size.value),
                    concat(size.least, " or more"));
  if (p.heads_q % p.heads_kv != 0)
    return refuse(ReasonCode::heads, "heads_kv", std::to_string(p.heads_kv),
                  concat("a divisor of heads_q ", p.heads_q),
                  concat("heads_q ", p.heads_q, " is not a multiple of heads_kv ", p.heads_kv,
                         " (accepted: heads_kv that divides heads_q)"));
  const int64_t out_bytes =
      saturating_product({p.batch, p.seq_q, p.heads_q, p.dim_v, int64_t{sizeof(float)}});
  if (out_bytes == kMaxSize) return too_large(ReasonCode::seq_limit, "seq_q", "the output");
  return {};
}

Status check_dtypes(const Problem& p) {
  if (p.dtype != kF32 && p.dtype != kF16 && p.dtype != kBF16)
    return refuse(ReasonCode::dtype, "dtype", std::string(name(p.dtype)), "f32, f16, bf16");
  if (p.out_dtype != p.dtype && p.out_dtype != kF32)
    return refuse(ReasonCode::output_dtype, "out_dtype", std::string(name(p.out_dtype)),
                  p.dtype == kF32 ? "f32" : concat(name(p.dtype), ", f32"));
  return {};
}

Status check_stride_set(const Problem& p) {
  const int64_t bytes = static_cast<int64_t>(size_bytes(p.dtype));
  struct Tensor {
    std::string_view name;
    const Strides* strides;
    int64_t seq, heads, dim;
  };
  const Tensor tensors[] = {{"q", &p.q_strides, p.seq_q, p.heads_q, p.head_dim},
                            {"k", &p.k_strides, p.seq_kv, p.heads_kv, p.head_dim},
                            {"v", &p.v_strides, p.seq_kv, p.heads_kv, p.dim_v}};
  for (const Tensor& t : tensors) {
    const Strides& s = *t.strides;
    // Texts for refusals only: every call is validated.
    const auto field = [&] { return concat(t.name, "_strides"); };
    const auto refused = [&](const char* accepted) {
      return refuse(ReasonCode::strides, field(), concat(s.batch, ',', s.seq, ',', s.head),
                    accepted);
    };
    if (s.batch < 0 || s.seq < 0 || s.head < 0) return refused("0 or more");
    if (p.layout == Layout::packed && s.batch != 0)
      return refused("a batch stride of 0 when packed");
    const int64_t last = saturating_add(
        saturating_add(saturating_multiply(std::max<int64_t>(p.batch - 1, 0), s.batch),
                       saturating_multiply(std::max<int64_t>(t.seq - 1, 0), s.seq)),
        saturating_add(saturating_multiply(t.heads - 1, s.head), t.dim));
    const int64_t elements = saturating_product({p.batch, t.seq, t.heads, t.dim});
    if (saturating_multiply(std::max(last, elements), bytes) == kMaxSize)
      return too_large(ReasonCode::strides,
                       p.strides_kind == StridesKind::custom ? field() : "seq_q", t.name);
  }
  return {};
}

Status check_strides(const Problem& p) {
  if (p.strides_kind == StridesKind::fused_qkv && p.seq_q != p.seq_kv)
    return refuse(ReasonCode::strides, "strides_kind", "fused_qkv", "seq_kv equal to seq_q",
                  concat("strides=fused_qkv needs seq_kv equal to seq_q, they are ", p.seq_kv,
                         " and ", p.seq_q));
  FOVEA_CHECK(check_stride_set(p));
  if (StrideSet{p.q_strides, p.k_strides, p.v_strides} != strides_of_kind(p))
    return refuse(ReasonCode::strides, "strides_kind", std::string(name(p.strides_kind)), "custom",
                  concat("the strides are not those of strides=", name(p.strides_kind),
                         " (call fill_strides() after changing sizes, or use custom)"));
  const bool power_of_two = p.alignment > 0 && (p.alignment & (p.alignment - 1)) == 0;
  if (!power_of_two || p.alignment > kMaxAlignment ||
      p.alignment < static_cast<int32_t>(size_bytes(p.dtype)))
    return refuse(
        ReasonCode::alignment, "alignment", std::to_string(p.alignment),
        concat("powers of two in ", static_cast<int>(size_bytes(p.dtype)), "..", kMaxAlignment));
  return {};
}

Status check_layouts(const Problem& p) {
  if ((p.layout == Layout::packed) != (p.out_layout == Layout::packed))
    return refuse(ReasonCode::layout, "out_layout", std::string(name(p.out_layout)),
                  p.layout == Layout::packed ? "packed" : "bshd, bhsd");
  return {};
}

Status check_mask(const Problem& p) {
  const MaskTensor& m = p.mask;
  if (m.kind == MaskKind::none) {
    if (m == MaskTensor{}) return {};
    return refuse(ReasonCode::mask, "mask", "none", "no other mask field set",
                  "mask none has no dtype and no axes (accepted: MaskTensor{})");
  }
  if (p.layout == Layout::packed)
    return refuse(ReasonCode::mask, "mask", std::string(name(m.kind)), "none, causal",
                  concat("the packed layout takes no mask tensor, got ", name(m.kind),
                         " (accepted: none, causal; documents separate by cu_seqlens)"));
  const bool boolean = m.dtype == kBool || m.dtype == kU8 || m.dtype == kI32 || m.dtype == kI64;
  const bool additive = m.dtype == kF32 || m.dtype == kF16 || m.dtype == kBF16;
  const bool fits = m.kind == MaskKind::boolean ? boolean
                    : m.kind == MaskKind::bias  ? additive
                                                : boolean || additive;
  if (!fits)
    return refuse(ReasonCode::mask_dtype, "mask.dtype", std::string(name(m.dtype)),
                  m.kind == MaskKind::boolean ? "bool, u8, i32, i64"
                  : m.kind == MaskKind::bias  ? "f32, f16, bf16"
                                              : "bool, u8, i32, i64, f32, f16, bf16");
  if (m.kind == MaskKind::keys && (m.per_head || m.per_query))
    return refuse(
        ReasonCode::mask, "mask.axes", "h or q", "b, none",
        "a keys mask is [1|B, Skv]: it has no head and no query axis (accepted: b, none)");
  const int64_t bytes = saturating_product({m.per_batch ? p.batch : 1, m.per_head ? p.heads_q : 1,
                                            m.per_query ? p.seq_q : 1, p.seq_kv,
                                            static_cast<int64_t>(size_bytes(m.dtype))});
  if (bytes == kMaxSize) return too_large(ReasonCode::mask, "mask", "the mask");
  return {};
}

Status check_visibility(const Problem& p) {
  const std::string window = concat(p.window.left, ',', p.window.right);
  if (p.window.left < -1 || p.window.right < -1)
    return refuse(ReasonCode::window, "window", window, "-1 (unbounded) or more on each side");
  if (p.causal && p.window.right > 0)
    return refuse(ReasonCode::window, "window", window, "L,0 or L,-1 with causal",
                  concat("window ", window, " looks ahead, causal does not (accepted with causal: ",
                         p.window.left, ",0 or ", p.window.left, ",-1)"));
  if (p.scale && !(std::isfinite(*p.scale) && *p.scale > 0))
    return refuse(ReasonCode::scale, "scale", text::format_number(*p.scale),
                  "finite numbers above 0");
  return {};
}

Status check_kv_lengths(const Problem& p) {
  const auto& values = p.kv_length_values;
  if (!p.has_kv_lengths && values.empty()) return {};
  if (!p.has_kv_lengths)
    return refuse(ReasonCode::kv_lengths, "kv_lengths", "values", "has_kv_lengths set with values");
  if (p.layout == Layout::packed)
    return refuse(ReasonCode::kv_lengths, "kv_lengths", "given", "none when packed",
                  "the packed layout takes no kv_lengths (documents have lengths of their own)");
  if (values.empty()) return {};
  if (static_cast<int64_t>(values.size()) != p.batch)
    return refuse(ReasonCode::kv_lengths, "kv_lengths", std::to_string(values.size()),
                  std::to_string(p.batch),
                  concat("kv_lengths has ", values.size(),
                         " entries (accepted: one per batch item, ", p.batch, ")"));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < 0 || values[i] > p.seq_kv)
      return refuse(ReasonCode::kv_lengths, "kv_lengths", std::to_string(values[i]),
                    concat("0..", p.seq_kv),
                    concat("kv_lengths[", i, "] is ", values[i], " (accepted: 0..", p.seq_kv, ")"));
  return {};
}

// Lengths of one side of all documents against the total and the stated maximum.
Status check_document_side(const Problem& p, bool is_q) {
  const std::string_view side = is_q ? "q" : "kv";
  const int64_t total = is_q ? p.seq_q : p.seq_kv;
  const int64_t longest = is_q ? p.max_document_q : p.max_document_kv;
  const std::string field = concat("max_document_", side);
  int64_t sum = 0, found = 0;
  for (size_t i = 0; i < p.document_values.size(); ++i) {
    const Document& document = p.document_values[i];
    const int64_t length = is_q ? document.seq_q : document.seq_kv;
    if (length < 0)
      return refuse(
          ReasonCode::packed, "document_values", std::to_string(length), "0 or more",
          concat("document ", i, " has ", length, ' ', side, " tokens (accepted: 0 or more)"));
    sum = saturating_add(sum, length);
    found = std::max(found, length);
  }
  if (!p.document_values.empty() && sum != total)
    return refuse(ReasonCode::packed, "document_values", std::to_string(sum), std::to_string(total),
                  concat("the documents have ", sum, ' ', side, " tokens in total, but ",
                         is_q ? "seq_q" : "seq_kv", " is ", total));
  if (!p.document_values.empty() && found != longest)
    return refuse(ReasonCode::packed, field, std::to_string(longest), std::to_string(found));
  if (longest > total || saturating_multiply(longest, p.documents) < total)
    return refuse(
        ReasonCode::packed, field, std::to_string(longest),
        concat("a length that ", p.documents, " documents with ", total, " tokens can have"),
        concat("the longest document has ", longest, ' ', side, " tokens, but ", p.documents,
               " documents have ", total, " tokens in total"));
  return {};
}

Status check_documents(const Problem& p) {
  if (p.layout != Layout::packed) {
    if (p.documents == 0 && p.max_document_q == 0 && p.max_document_kv == 0 &&
        p.document_values.empty())
      return {};
    return refuse(ReasonCode::packed, "documents", std::to_string(p.documents), "layout packed",
                  concat("documents need the packed layout, it is ", name(p.layout)));
  }
  if (p.batch != 1)
    return refuse(ReasonCode::packed, "batch", std::to_string(p.batch), "1 when packed");
  if (!p.document_values.empty() && static_cast<int64_t>(p.document_values.size()) != p.documents)
    return refuse(ReasonCode::packed, "documents", std::to_string(p.documents),
                  std::to_string(p.document_values.size()));
  FOVEA_CHECK(check_document_side(p, true));
  return check_document_side(p, false);
}

Status check_pieces(const Problem& p) {
  if (p.pieces.empty()) return {};
  const std::pair<bool, std::string_view> others[] = {{p.layout == Layout::packed, "documents"},
                                                      {p.causal, "causal"},
                                                      {p.window != Window{}, "a window"},
                                                      {p.has_kv_lengths, "kv_lengths"},
                                                      {p.sparse.has_value(), "a sparse pattern"}};
  for (const auto& [given, what] : others)
    if (given)
      return refuse(ReasonCode::piecewise, "pieces", concat("with ", what), "a mask tensor at most",
                    concat("pieces and ", what,
                           " exclude each other (pieces say what every row "
                           "sees; a mask tensor may hide more)"));
  int64_t rows = 0;
  for (size_t i = 0; i < p.pieces.size(); ++i) {
    const Piece& piece = p.pieces[i];
    if (piece.rows < 1 || piece.keys < 0 || piece.keys > p.seq_kv)
      return refuse(ReasonCode::piecewise, "pieces", concat(piece.rows, ':', piece.keys),
                    concat("1 row or more, 0..", p.seq_kv, " keys"),
                    concat("piece ", i, " has ", piece.rows, " rows and ", piece.keys,
                           " keys (accepted: 1 row or more, 0..", p.seq_kv, " keys)"));
    rows = saturating_add(rows, piece.rows);
  }
  if (rows != p.seq_q)
    return refuse(ReasonCode::piecewise, "pieces", std::to_string(rows), std::to_string(p.seq_q),
                  concat("the pieces have ", rows, " rows in total, but seq_q is ", p.seq_q));
  return {};
}

// What a sparse pattern's words may hold, so that they print and read back.
bool plain_word(std::string_view word) noexcept {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return c > ' ' && c < 0x7F && c != ',' && c != '(' && c != ')' && c != '=';
  });
}

Status check_sparse(const Problem& p) {
  if (!p.sparse) return {};
  constexpr std::string_view kPlain = "printable characters without blanks , ( ) =";
  if (!plain_word(p.sparse->name))
    return refuse(ReasonCode::sparse, "sparse", text::quote(p.sparse->name), std::string(kPlain));
  for (const auto& parameter : p.sparse->parameters) {
    for (const std::string* word : {&parameter.first, &parameter.second})
      if (!plain_word(*word))
        return refuse(ReasonCode::sparse, "sparse", text::quote(*word), std::string(kPlain));
    const auto same = [&](const auto& other) { return other.first == parameter.first; };
    if (std::count_if(p.sparse->parameters.begin(), p.sparse->parameters.end(), same) > 1)
      return refuse(ReasonCode::sparse, "sparse", parameter.first, "each parameter once");
  }
  return {};
}

struct Hash {
  size_t value = 0;

  void add(size_t piece) noexcept {
    value ^= piece + 0x9E3779B97F4A7C15ull + (value << 6) + (value >> 2);
  }
  void add(int64_t piece) noexcept { add(static_cast<size_t>(piece)); }
  void add(DType dtype) noexcept {
    add(static_cast<size_t>(dtype.code | dtype.bits << 8 | dtype.lanes << 16));
  }
  void add(const Strides& s) noexcept {
    add(s.batch);
    add(s.seq);
    add(s.head);
  }
  void add(std::string_view piece) noexcept { add(std::hash<std::string_view>{}(piece)); }
};

}  // namespace

double Problem::effective_scale() const noexcept {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

bool Problem::dense() const noexcept {
  return strides_kind == StridesKind::contig && layout != Layout::packed && !causal &&
         window == Window{} && mask.kind == MaskKind::none && !has_kv_lengths && pieces.empty() &&
         !sparse;
}

void fill_strides(Problem& problem) noexcept {
  const StrideSet set = strides_of_kind(problem);
  problem.q_strides = set.q;
  problem.k_strides = set.k;
  problem.v_strides = set.v;
}

Status validate(const Problem& problem) {
  for (Status (*check)(const Problem&) :
       {check_sizes, check_dtypes, check_layouts, check_strides, check_mask, check_visibility,
        check_kv_lengths, check_documents, check_pieces, check_sparse})
    FOVEA_CHECK(check(problem));
  return {};
}

double flop_count(const Problem& p) noexcept {
  double pairs = static_cast<double>(p.seq_q) * static_cast<double>(p.seq_kv);
  if (!p.document_values.empty()) {
    pairs = 0;
    for (const Document& document : p.document_values)
      pairs += static_cast<double>(document.seq_q) * static_cast<double>(document.seq_kv);
  } else if (p.documents > 0) {
    pairs /= static_cast<double>(p.documents);
  }
  return 2.0 * pairs * static_cast<double>(p.heads_q) * static_cast<double>(p.batch) *
         (static_cast<double>(p.head_dim) + static_cast<double>(p.dim_v));
}

size_t hash_value(const Problem& p) noexcept {
  Hash hash;
  hash.add(p.dtype);
  hash.add(p.out_dtype);
  for (int64_t size :
       {p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_kv, p.head_dim, p.dim_v, p.documents,
        p.max_document_q, p.max_document_kv, p.window.left, p.window.right, int64_t{p.alignment}})
    hash.add(size);
  const size_t flags =
      static_cast<size_t>(p.causal) | static_cast<size_t>(p.has_kv_lengths) << 1 |
      static_cast<size_t>(p.lse) << 2 | static_cast<size_t>(p.mask.per_batch) << 3 |
      static_cast<size_t>(p.mask.per_head) << 4 | static_cast<size_t>(p.mask.per_query) << 5 |
      static_cast<size_t>(p.layout) << 8 | static_cast<size_t>(p.out_layout) << 10 |
      static_cast<size_t>(p.mask.kind) << 12 | static_cast<size_t>(p.strides_kind) << 16;
  hash.add(flags);
  hash.add(p.mask.dtype);
  hash.add(p.scale ? std::hash<double>{}(*p.scale) : size_t{1});
  hash.add(p.q_strides);
  hash.add(p.k_strides);
  hash.add(p.v_strides);
  for (int64_t length : p.kv_length_values) hash.add(length);
  for (const Piece& piece : p.pieces) {
    hash.add(piece.rows);
    hash.add(piece.keys);
    hash.add(static_cast<size_t>(piece.causal));
  }
  for (const Document& document : p.document_values) {
    hash.add(document.seq_q);
    hash.add(document.seq_kv);
  }
  if (p.sparse) {
    hash.add(std::string_view(p.sparse->name));
    for (const auto& [key, value] : p.sparse->parameters) {
      hash.add(std::string_view(key));
      hash.add(std::string_view(value));
    }
  }
  hash.add(static_cast<size_t>(p.seed));
  return hash.value;
}

}  // namespace fovea
