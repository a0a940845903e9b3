#include <mutex>

#include "src/core/log.hpp"
#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea {

struct SparseAttentionState::State {
  State(AttentionSpec s, MaskMap m, VideoModel v)
      : spec(std::move(s)), mask_map(std::move(m)), model(v) {}

  const AttentionSpec spec;  // the block of its backend is set
  const MaskMap mask_map;
  const VideoModel model;
  std::optional<SparsePattern> pattern;

  mutable std::mutex mutex;
  int64_t step = 0;
  int64_t layer = 0;
  std::optional<int64_t> total_steps;
  std::optional<DenseCause> fixed;
};

SparseAttentionState::SparseAttentionState(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
SparseAttentionState::SparseAttentionState(SparseAttentionState&&) noexcept = default;
SparseAttentionState& SparseAttentionState::operator=(SparseAttentionState&&) noexcept = default;
SparseAttentionState::~SparseAttentionState() = default;

Result<SparseAttentionState> SparseAttentionState::create(const SparseAttentionConfig& config,
                                                          MaskMap mask_map,
                                                          std::string_view model_type) {
  GuideConfig guide;
  guide.attn_impl =
      config.sparse_impl == "local" ? backend::LOCAL_SPARSE_ATTN : backend::RADIAL_ATTN;
  guide.sparse_config = config;
  if (!config.sparse_impl || config.sparse_impl == "none") {
    return Error{ErrorCode::invalid_config,
                 "sparse_config has no sparse_impl, so there is nothing to keep a state for "
                 "(accepted: radial, local)",
                 {}};
  }
  FOVEA_TRY(const AttentionConfig full, AttentionConfig::from_guide(guide));
  return create(*full.default_spec, std::move(mask_map), model_type);
}

Result<SparseAttentionState> SparseAttentionState::create(const AttentionSpec& spec,
                                                          MaskMap mask_map,
                                                          std::string_view model_type) {
  FOVEA_CHECK(validate(spec));
  AttentionSpec full = spec;
  if (spec.backend == backend::RADIAL_ATTN) {
    if (!full.radial) full.radial.emplace();
  } else if (spec.backend == backend::LOCAL_SPARSE_ATTN) {
    if (!full.local_sparse) full.local_sparse.emplace();
  } else if (spec.backend == backend::BLOCK_SPARSE_ATTN || spec.backend == backend::SPARGE_ATTN) {
    if (!full.block_sparse) full.block_sparse.emplace();
  } else {
    return Error{ErrorCode::invalid_config,
                 text::concat(name(spec.backend),
                              " keeps no sparse state (accepted: RADIAL_ATTN, LOCAL_SPARSE_ATTN, "
                              "BLOCK_SPARSE_ATTN, SPARGE_ATTN)"),
                 {}};
  }
  FOVEA_TRY(const VideoModel model, parse_video_model(model_type));
  auto state = std::make_unique<State>(std::move(full), std::move(mask_map), model);
  const MaskMap& map = state->mask_map;
  state->pattern = sparse::video_pattern(
      state->spec, {map.num_frame(), map.tokens_per_frame(), map.grid(), model});
  return SparseAttentionState(std::move(state));
}

Status SparseAttentionState::update(std::optional<int64_t> numeral_timestep,
                                    std::optional<int64_t> layer_idx) {
  if (numeral_timestep) {
    FOVEA_CHECK(sparse::check_range("numeral_timestep", *numeral_timestep, 0, INT32_MAX));
  }
  if (layer_idx) FOVEA_CHECK(sparse::check_range("layer_idx", *layer_idx, 0, INT32_MAX));
  const std::lock_guard lock(state_->mutex);
  state_->step = numeral_timestep.value_or(state_->step);
  state_->layer = layer_idx.value_or(state_->layer);
  return {};
}

Status SparseAttentionState::begin_run(int64_t steps, int64_t layers) {
  AttentionConfig config;
  config.default_spec = state_->spec;
  MatrixQuery query;
  query.steps = steps;
  query.layers = layers;
  FOVEA_CHECK(sparse::check_range("steps", steps, 1, INT32_MAX));
  FOVEA_CHECK(sparse::check_range("layers", layers, 1, INT32_MAX));
  FOVEA_TRY(const ScheduleMatrix matrix, ScheduleMatrix::build(config, nullptr, query));
  for (const std::string& warning : matrix.warnings()) log(LogLevel::warning, warning);
  const std::lock_guard lock(state_->mutex);
  state_->total_steps = steps;
  return {};
}

int64_t SparseAttentionState::numeral_timestep() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

int64_t SparseAttentionState::layer_idx() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->layer;
}

void SparseAttentionState::fix(DenseCause cause) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->fixed = cause;
}

DenseCause SparseAttentionState::dense_cause() const noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->fixed) return *state_->fixed;
  return fovea::dense_cause(&state_->spec, state_->step, state_->layer, state_->total_steps);
}

std::string_view SparseAttentionState::sparsity_type() const noexcept {
  if (should_use_dense()) return "dense";
  if (state_->spec.radial) return "radial";
  return state_->spec.local_sparse ? "local" : "block_sparse";
}

BackendName SparseAttentionState::dense_backend() const noexcept {
  return fovea::dense_backend(state_->spec);
}

const std::optional<SparsePattern>& SparseAttentionState::pattern() const noexcept {
  return state_->pattern;
}

Result<std::shared_ptr<const BlockMask>> SparseAttentionState::mask(int64_t seq_len) const {
  if (state_->spec.radial) {
    return state_->mask_map.radial(seq_len, *state_->spec.radial, state_->model);
  }
  if (state_->spec.local_sparse) {
    return state_->mask_map.local(seq_len, *state_->spec.local_sparse);
  }
  return Error{ErrorCode::invalid_config,
               name(state_->spec.backend) + " has no video pattern; its blocks come with the call",
               {}};
}

const AttentionSpec& SparseAttentionState::spec() const noexcept { return state_->spec; }
const MaskMap& SparseAttentionState::mask_map() const noexcept { return state_->mask_map; }

}  // namespace fovea
