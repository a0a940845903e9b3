// A Problem says everything that decides whether and how an attention call can run, without tensor
// values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.hpp"
#include "fovea/error.hpp"
#include "fovea/layout.hpp"

namespace fovea {

// keys: [1|B, Skv] key padding; boolean: 3-D or 4-D, true = attend; bias: additive.
enum class MaskKind : uint8_t { none, keys, boolean, bias };

// The mask tensor of a call. A false per_* flag means that axis has size 1 and is broadcast.
struct MaskTensor {
  MaskKind kind = MaskKind::none;
  DType dtype = kBool;
  bool per_batch = false;
  bool per_head = false;
  bool per_query = false;

  bool operator==(const MaskTensor&) const = default;
};

// Row i of an item with n keys and m queries sees i + (n - m) - left <= j <= i + (n - m) + right;
// -1 = unbounded.
struct Window {
  int64_t left = -1;
  int64_t right = -1;

  bool operator==(const Window&) const = default;
};

// Lengths of one packed document.
struct Document {
  int64_t seq_q = 0;
  int64_t seq_kv = 0;

  bool operator==(const Document&) const = default;
};

// Some query rows that follow each other, of every batch item alike, and the keys they see: the
// first `keys` ones, or causally those up to the diagonal that ends, with the last row, at key
// `keys` - 1.
struct Piece {
  int64_t rows = 0;
  int64_t keys = 0;
  bool causal = false;

  bool operator==(const Piece&) const = default;
};

// Element strides of q, k or v; the head dimension is contiguous. Packed tensors have batch = 0.
struct Strides {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t head = 0;

  bool operator==(const Strides&) const = default;
};

// A sparse pattern by backend name and its parameters as text, e.g. radial(decay=1,frames=16).
struct SparsePattern {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;

  bool operator==(const SparsePattern&) const = default;
};

// Which strides a problem string asks for. custom: the problem came from real tensors.
enum class StridesKind : uint8_t { contig, fused_qkv, bhsd_view, expanded, custom };

// A value type: no pointers, comparable, hashable. Two problems that compare equal get the same
// decision.
struct Problem {
  DType dtype = kF32;      // q, k and v
  DType out_dtype = kF32;  // dtype, or f32 on request
  int64_t batch = 1;
  int64_t heads_q = 1;
  int64_t heads_kv = 1;
  int64_t seq_q = 1;   // packed: total query tokens
  int64_t seq_kv = 1;  // packed: total key tokens
  int64_t head_dim = 64;
  int64_t dim_v = 64;
  Layout layout = Layout::bshd;
  Layout out_layout = Layout::bshd;
  bool causal = false;
  Window window;
  MaskTensor mask;
  bool has_kv_lengths = false;
  // Mixed causal and full attention: pieces that together are all query rows. Empty: none. Excludes
  // causal, window, lengths, documents and sparse patterns; intersects with a mask tensor.
  std::vector<Piece> pieces;
  bool lse = false;
  std::optional<double> scale;  // unset: head_dim^-0.5
  StridesKind strides_kind = StridesKind::contig;
  Strides q_strides;
  Strides k_strides;
  Strides v_strides;
  int32_t alignment =
      64;  // bytes; the largest power of two <= 64 dividing every base address of q, k, v, out
  int64_t documents = 0;  // packed: number of documents, else 0
  int64_t max_document_q = 0;
  int64_t max_document_kv = 0;
  // Values that a problem string states; calls with real tensors leave them empty.
  std::vector<int64_t> kv_length_values;
  std::vector<Document> document_values;
  std::optional<SparsePattern> sparse;
  uint64_t seed = 0;

  bool operator==(const Problem&) const = default;

  // The scale that applies: `scale`, or head_dim^-0.5.
  FOVEA_API double effective_scale() const noexcept;
  // True when no strides, mask, packing, pieces or lengths beyond plain dense attention are asked
  // for.
  FOVEA_API bool dense() const noexcept;
};

// Fills q/k/v strides from strides_kind and the sizes. Call after changing sizes, layout or
// strides_kind; custom strides are left alone. Thread-safe (touches only `problem`).
FOVEA_API void fill_strides(Problem& problem) noexcept;

// Sizes, ratios and ranges that no path could accept are argument errors (invalid_problem) naming
// the field: heads_q % heads_kv, head_dim < 1, causal with right > 0, scale not finite or <= 0,
// packed with a mask tensor, negative sizes, products over 2^63 and the like.
FOVEA_API Status validate(const Problem& problem);

// 2 * seq_q * seq_kv * heads_q * batch * (head_dim + dim_v); visible pairs are not taken into
// account. Packed problems sum over documents when their lengths are known, else they count as if
// all documents were of one length.
FOVEA_API double flop_count(const Problem& problem) noexcept;

// Problem strings: "bf16 b1 h24 s4096 d128 mask=causal lse=1". Printed in a fixed order without
// defaults, read in any order. parse(print(p)) == p for every valid p with values stated. Errors:
// invalid_problem with the position (0-based column) of the word and what is accepted. Grammar:
// docs/problem_string.md.
FOVEA_API std::string to_string(const Problem& problem);
FOVEA_API Result<Problem> parse_problem(std::string_view text);

// A hash that agrees with operator==.
FOVEA_API size_t hash_value(const Problem& problem) noexcept;

}  // namespace fovea
