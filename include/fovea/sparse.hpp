// Block-sparse attention: which blocks of keys a block of queries reads, the patterns that make
// such masks for video, and the state that one request carries through its denoising steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/executor.hpp"
#include "fovea/problem.hpp"
#include "fovea/schedule.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// What a block mask covers. Sequences may end inside a block; batch or heads of 1 are broadcast.
struct BlockMaskShape {
  int64_t seq_q = 0;
  int64_t seq_kv = 0;
  int32_t block_q = 128;   // 64 or 128
  int32_t block_kv = 128;  // 64 or 128
  int64_t batch = 1;
  int64_t heads = 1;

  int64_t rows() const noexcept { return (seq_q + block_q - 1) / block_q; }
  int64_t columns() const noexcept { return (seq_kv + block_kv - 1) / block_kv; }

  bool operator==(const BlockMaskShape&) const = default;
};

// For every batch, head and block of queries the ascending list of key blocks that it reads. Keys
// outside the listed blocks are hidden; inside them every key before seq_kv is visible. Immutable
// value; thread-safe.
class BlockMask {
 public:
  // From bytes [batch, heads, rows, columns]: nonzero is on. Error invalid_argument: a block size
  // other than 64 or 128, an empty or too large shape, a wrong number of bytes.
  FOVEA_API static Result<BlockMask> from_matrix(const BlockMaskShape& shape,
                                                 std::span<const uint8_t> matrix);
  // From counts [batch, heads, rows] and indices [batch, heads, rows, max_count] of which the first
  // count of a row are read. Error invalid_argument: as above; an index out of range, twice or out
  // of order.
  FOVEA_API static Result<BlockMask> from_lists(const BlockMaskShape& shape,
                                                std::span<const int32_t> counts,
                                                std::span<const int32_t> indices);

  // From a bool or uint8 mask [batch, heads, seq_q, seq_kv] on the CPU (true: attend): blocks that
  // it hides altogether are off, blocks in which it hides nothing are full, the others partial.
  // Pass the mask with the call as well; full blocks do not read it. Error invalid_argument:
  // another shape, type or device.
  FOVEA_API static Result<BlockMask> from_token_mask(const BlockMaskShape& shape,
                                                     const TensorView& mask);

  const BlockMaskShape& shape() const noexcept { return shape_; }
  int64_t rows() const noexcept { return shape_.rows(); }
  int64_t columns() const noexcept { return shape_.columns(); }

  // [batch, heads, rows].
  std::span<const int32_t> counts() const noexcept { return counts_; }
  // [batch, heads, rows, max_count]; places after a row's count hold -1.
  std::span<const int32_t> indices() const noexcept { return indices_; }
  // Beside every index 1 where a mask hides tokens inside the block, else 0: the block is full.
  // Empty when all are full.
  std::span<const uint8_t> partial() const noexcept { return partial_; }
  FOVEA_API int64_t partial_blocks() const noexcept;
  // The longest row; at least 1.
  int64_t max_count() const noexcept { return max_count_; }
  // The key blocks of one row. 0 <= batch < shape().batch and so on.
  std::span<const int32_t> row(int64_t batch, int64_t head, int64_t row) const noexcept {
    const auto at = static_cast<size_t>((batch * shape_.heads + head) * rows() + row);
    return std::span(indices_).subspan(at * static_cast<size_t>(max_count_),
                                       static_cast<size_t>(counts_[at]));
  }

  // Bytes 0 and 1, [batch, heads, rows, columns].
  FOVEA_API std::vector<uint8_t> matrix() const;
  // The number of blocks that are on, and their share of all.
  int64_t active() const noexcept { return active_; }
  FOVEA_API double density() const noexcept;
  // The shortest row's length, and the number of rows without a block: their output is 0 and their
  // lse -inf.
  FOVEA_API int64_t min_count() const noexcept;
  FOVEA_API int64_t empty_rows() const noexcept;
  // Entry n is the number of rows with n blocks; columns() + 1 entries.
  FOVEA_API std::vector<int64_t> row_histogram() const;
  // Memory of the lists.
  FOVEA_API int64_t memory_bytes() const noexcept;
  // FNV-1a, 64 bits, over the bytes of matrix().
  FOVEA_API uint64_t hash() const noexcept;
  // One line of # and . per block of queries; batches and heads follow each other with an empty
  // line between.
  FOVEA_API std::string text() const;

  // The same keys in smaller blocks: 128 to 64 on either axis; parts of partial blocks are partial.
  // Larger blocks would make keys visible, so they are refused by name. Error invalid_argument.
  FOVEA_API Result<BlockMask> split(int32_t block_q, int32_t block_kv) const;

  bool operator==(const BlockMask&) const = default;

 private:
  BlockMask() = default;
  // As from_matrix; 2 is a partial block.
  static Result<BlockMask> from_classes(const BlockMaskShape& shape,
                                        std::span<const uint8_t> classes);
  std::vector<uint8_t> classes() const;

  BlockMaskShape shape_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> indices_;
  std::vector<uint8_t> partial_;
  int64_t max_count_ = 1;
  int64_t active_ = 0;
};

// Which rule turns a radial pattern into blocks; docs/sparse/radial.md.
enum class RadialRule : uint8_t {
  radial,     // the authors' rule and every diagonal block: no row is empty
  authors,    // the authors' rule alone
  telefuser,  // also the first and last row of blocks of every pair of frames
};
FOVEA_API std::string_view name(RadialRule rule) noexcept;
// Error invalid_argument lists the rules.
FOVEA_API Result<RadialRule> parse_radial_rule(std::string_view text);

// The family a video model belongs to: with wan every query sees the first frame.
enum class VideoModel : uint8_t { wan, hunyuan };
FOVEA_API std::string_view name(VideoModel model) noexcept;
// Error invalid_argument lists the models.
FOVEA_API Result<VideoModel> parse_video_model(std::string_view text);

// Radial attention: between two frames the window of positions halves each time their distance
// doubles. Tokens are frames in order, then text. A last block may be ragged.
struct RadialPattern {
  int64_t frames = 0;
  int64_t tokens_per_frame = 0;
  int64_t text_tokens = 0;  // they see and are seen by all
  int32_t block_size = 128;
  double decay_factor = 1.0;  // scales windows from a distance of two frames on; finite, > 0
  VideoModel model = VideoModel::wan;
  RadialRule rule = RadialRule::radial;

  bool operator==(const RadialPattern&) const = default;
};

// Rows and columns of blocks in one layer of a video whose tokens are in window order: every block
// holds one window, a layer is height * width windows.
struct BlockWindowGrid {
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const BlockWindowGrid&) const = default;
};

// A local window in space; every frame is visible. `window` is the total width in blocks per axis:
// position p sees p - window / 2 up to p - window / 2 + window - 1. Without a grid the positions of
// a frame are its tokens in order, one every block_size.
struct LocalWindowPattern {
  int64_t frames = 0;
  int64_t tokens_per_frame = 0;
  int64_t text_tokens = 0;
  int32_t block_size = 128;
  int64_t window = 6;
  std::optional<BlockWindowGrid> grid;

  bool operator==(const LocalWindowPattern&) const = default;
};

// Builds the mask of a pattern; batch and heads are 1. Error invalid_argument names the field, the
// value and what fits. Pure; thread-safe.
FOVEA_API Result<BlockMask> build_mask(const RadialPattern& pattern);
FOVEA_API Result<BlockMask> build_mask(const LocalWindowPattern& pattern);

// Blocks of keys chosen for every block of queries from averages of queries and keys;
// docs/sparse/topk.md.
struct BlockTopk {
  double sparsity = 0.8;         // 0 to 1: share of the unprotected blocks that is left out
  int32_t block_size = 128;      // 64 or 128
  int64_t protected_prefix = 0;  // first keys, such as text, whose blocks are always kept

  bool operator==(const BlockTopk&) const = default;
};

// Error invalid_argument names the field.
FOVEA_API Status validate(const BlockTopk& options);
// Blocks that a row keeps of seq_kv keys. Pure.
FOVEA_API int64_t topk_count(const BlockTopk& options, int64_t seq_kv) noexcept;
// What a call with these tensors on the CPU (q, k, and kv_lengths where present) would choose.
// Errors: as validate; invalid_argument for packed documents. Thread-safe.
FOVEA_API Result<BlockMask> select_blocks(const BlockTopk& options, const AttentionTensors& tensors,
                                          const Problem& problem, Executor& executor);

// The masks of one video geometry, built on first use and kept: the most recent few, never more
// than capacity(). Copies share the cache. Thread-safe.
class MaskMap {
 public:
  // `video_token_num` tokens in num_frame equal frames. `grid` is for local windows. Error
  // invalid_argument: counts below 1, video_token_num not a multiple of num_frame (names the
  // nearest that fit).
  FOVEA_API static Result<MaskMap> create(int64_t video_token_num, int64_t num_frame,
                                          std::optional<BlockWindowGrid> grid = {});

  FOVEA_API int64_t video_token_num() const noexcept;
  FOVEA_API int64_t num_frame() const noexcept;
  FOVEA_API int64_t tokens_per_frame() const noexcept;
  FOVEA_API std::optional<BlockWindowGrid> grid() const noexcept;

  // The mask for a sequence of the video tokens and then text up to seq_len. Errors:
  // invalid_argument.
  FOVEA_API Result<std::shared_ptr<const BlockMask>> radial(int64_t seq_len,
                                                            const RadialOptions& options,
                                                            VideoModel model) const;
  FOVEA_API Result<std::shared_ptr<const BlockMask>> local(int64_t seq_len,
                                                           const LocalSparseOptions& options) const;

  // Masks kept now.
  FOVEA_API size_t size() const;
  static constexpr size_t capacity() noexcept { return 8; }

 private:
  struct State;
  explicit MaskMap(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Where one request stands in its denoising run, and which mask applies there. One per request;
// calls may overlap, but a request that runs several layers at once needs a state for each.
class SparseAttentionState {
 public:
  // `model_type` is "wan" or "hunyuan". Error invalid_config: sparse_impl absent or unknown, values
  // out of range; invalid_argument: an unknown model_type.
  FOVEA_API static Result<SparseAttentionState> create(const SparseAttentionConfig& config,
                                                       MaskMap mask_map,
                                                       std::string_view model_type = "wan");
  // The same from a spec of RADIAL_ATTN, LOCAL_SPARSE_ATTN, BLOCK_SPARSE_ATTN or SPARGE_ATTN; the
  // last two have a schedule but no video pattern. Error invalid_config for others.
  FOVEA_API static Result<SparseAttentionState> create(const AttentionSpec& spec, MaskMap mask_map,
                                                       std::string_view model_type = "wan");
  FOVEA_API SparseAttentionState(SparseAttentionState&&) noexcept;
  FOVEA_API SparseAttentionState& operator=(SparseAttentionState&&) noexcept;
  FOVEA_API ~SparseAttentionState();

  // Step 0 is the first denoising step, the noisiest; layer 0 the first block. What is not given
  // stays. Error invalid_argument: a negative number; then nothing changes.
  FOVEA_API Status update(std::optional<int64_t> numeral_timestep,
                          std::optional<int64_t> layer_idx = {});
  // The run as a whole. Needed for end_step, and finds a schedule that is dense in every step and
  // layer: error invalid_config when the spec is meant strictly, else a warning. Error
  // invalid_argument: a number below 1.
  FOVEA_API Status begin_run(int64_t steps, int64_t layers);
  FOVEA_API int64_t numeral_timestep() const noexcept;
  FOVEA_API int64_t layer_idx() const noexcept;

  // For callers that have taken the decision, such as a compiled graph: whatever the step and the
  // layer, calls run dense for this cause, or sparse with none.
  FOVEA_API void fix(DenseCause cause) noexcept;
  // Why this step and layer run dense; none when they run sparse.
  FOVEA_API DenseCause dense_cause() const noexcept;
  bool should_use_dense() const noexcept { return dense_cause() != DenseCause::none; }
  // "dense" at a dense step or layer, else "radial", "local" or "block_sparse".
  FOVEA_API std::string_view sparsity_type() const noexcept;
  // What runs at dense steps and layers.
  FOVEA_API BackendName dense_backend() const noexcept;

  // The pattern of the sparse steps as it stands in a Problem; nothing without a video pattern.
  FOVEA_API const std::optional<SparsePattern>& pattern() const noexcept;
  // The mask of the sparse steps. Errors as MaskMap; invalid_config without a video pattern.
  FOVEA_API Result<std::shared_ptr<const BlockMask>> mask(int64_t seq_len) const;

  FOVEA_API const AttentionSpec& spec() const noexcept;
  FOVEA_API const MaskMap& mask_map() const noexcept;

 private:
  struct State;
  explicit SparseAttentionState(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fovea
