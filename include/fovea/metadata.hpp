// What a model states about the masks and lengths of an attention call, and the one place that
// turns it into what kernels read. Everything here is stated on the host: no mask or length tensor
// is ever read to find out what it means.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"
#include "fovea/video_layout.hpp"

namespace fovea {

// One row that holds tokens and padding behind them: the first q_length queries attend to the first
// kv_length keys. The other queries see nothing (output 0, LSE -inf); the other keys are never
// read.
struct PackedPadding {
  int64_t q_length = 0;
  int64_t kv_length = 0;

  bool operator==(const PackedPadding&) const = default;
};

// Positions begin .. end - 1 of the keys.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Span&) const = default;
};

// Query rows local_begin .. local_end - 1 of this call stand at global_begin and after. Ranges
// follow each other and together are all rows, as a shard of a longer sequence has them.
struct QueryRange {
  int64_t local_begin = 0;
  int64_t local_end = 0;
  int64_t global_begin = 0;

  bool operator==(const QueryRange&) const = default;
};

struct AttentionMetadata {
  // The published meaning of the mask tensor; its producer renews it with the mask. none: the mask
  // hides nothing and is not read. padding: it hides keys, the same ones from every query.
  // arbitrary: anything. Unset: padding when the mask has no head and no query axis, otherwise
  // arbitrary. Says nothing, and is not checked, where a call passes no mask.
  std::optional<MaskMode> mask_mode;
  // Every item sees the first valid_kv_length keys only; K, V and the mask are read up to there and
  // the diagonal of causal and window ends there.
  std::optional<int64_t> valid_kv_length;
  std::optional<PackedPadding> packed_padding;
  // Mixed causal and full attention, the same for every item: a query whose position lies in a span
  // sees every key before the span's end, any other sees the keys up to its own position. Query i
  // stands at position i + (Skv - Sq) unless query_ranges say otherwise. Set but empty: causal
  // everywhere. Sorted, not overlapping.
  std::optional<std::vector<Span>> full_attn_spans;
  std::vector<QueryRange> query_ranges;
  // Every query of a sparse path sees the blocks that hold the first keys: blocks chosen from the
  // data keep them on top of those that score highest (the larger of this and
  // block_sparse.protected_prefix), patterns and masks that leave one out are refused. Dense
  // attention sees them anyway.
  int64_t protected_kv_prefix = 0;
  std::optional<VideoLayout> video_layout;
  // Element type that keys and values are stored in, where it is not theirs: "fp8", ... Empty,
  // "auto", "float": none.
  std::string kv_cache_dtype;
  // Ascend: run packed or prefix-sliced where the call allows it.
  bool npu_attn_varlen = false;
  // Ascend laser attention: factor of its inputs, finite and > 0. Refused by every other path.
  std::optional<double> laser_input_scale;

  bool operator==(const AttentionMetadata&) const = default;
};

// A call as kernels see it: `problem` and the modes are what resolution and dispatch both work
// from; the rest says how the caller's tensors become those of `problem`.
struct NormalForm {
  Problem problem;
  MaskMode mask_mode = MaskMode::none;
  PackingMode packing_mode = PackingMode::none;
  bool drop_mask = false;
  std::optional<int64_t> kv_prefix;  // keys and mask columns from here on are left out
  // kv_lengths, one for each item, where keys of a sparse pattern are hidden; else empty.
  std::vector<int64_t> lengths;
  // Boundaries of padding as documents: the tokens, the queries that see nothing, the keys that
  // nobody sees. Unused unless `documents`.
  bool documents = false;
  Layout input_layout = Layout::bshd;  // of the caller's tensors
  std::array<int32_t, 4> starts_q{};
  std::array<int32_t, 4> starts_kv{};
  int64_t protected_kv_prefix = 0;
  int64_t used_length = 0;     // of a video layout; 0 without one
  std::string kv_cache_dtype;  // empty: keys and values are stored in their own type
};

// The one function that resolution and dispatch share. `problem` describes the tensors as the
// caller passes them (see describe). Errors: invalid_argument with one reason for each
// contradiction, naming the field; nothing is changed then. Reads no tensor. Pure; thread-safe.
FOVEA_API Result<NormalForm> normalise(const Problem& problem, const AttentionMetadata& metadata);

// The caller's tensors as those of `form.problem`: views only, nothing is read or copied. The
// result points into `form`, which must outlive its use. Pure; thread-safe.
FOVEA_API AttentionTensors apply(const NormalForm& form, const AttentionTensors& tensors) noexcept;

// Fills in what the metadata decides: mask and packing mode, piecewise, dtype, causal, the type of
// stored keys (unless paged storage has its own) and the flags of the normal form.
FOVEA_API void describe_context(const NormalForm& form, const AttentionMetadata& metadata,
                                ExecutionContext& context);

// Reads metadata as a JSON map. Keys are the field names; spans are [begin, end], query ranges
// [local_begin, local_end, global_begin], grids [frames, height, width]. Unknown keys and values of
// another type are errors (invalid_config), all of them reported at once. docs/metadata.md.
FOVEA_API Result<AttentionMetadata> parse_metadata(std::string_view json);

}  // namespace fovea
