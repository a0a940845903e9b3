#include "src/validation/sparse_call.hpp"

#include "src/core/text.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea::validation {

namespace {

BackendName own_backend(const sparse::Pattern& pattern) {
  if (std::holds_alternative<RadialPattern>(pattern)) return backend::RADIAL_ATTN;
  if (std::holds_alternative<LocalWindowPattern>(pattern)) return backend::LOCAL_SPARSE_ATTN;
  return backend::BLOCK_SPARSE_ATTN;
}

// The spec of the role, made where there is none.
AttentionSpec& spec_of(AttentionConfig& config, const LayerOptions& layer,
                       const sparse::Pattern& pattern) {
  for (const std::string* key : {&layer.role, &layer.category}) {
    if (const auto found = config.per_role.find(*key); found != config.per_role.end()) {
      return found->second;
    }
  }
  if (!config.default_spec) config.default_spec.emplace().backend = own_backend(pattern);
  return *config.default_spec;
}

void set_options(const RadialPattern& pattern, AttentionSpec& spec) {
  RadialOptions options = spec.radial.value_or(RadialOptions{});
  options.dense_timesteps = options.dense_layers = 0;
  options.decay_factor = pattern.decay_factor;
  options.block_size = pattern.block_size;
  options.rule = name(pattern.rule);
  spec.radial = std::move(options);
}

void set_options(const LocalWindowPattern& pattern, AttentionSpec& spec) {
  LocalSparseOptions options = spec.local_sparse.value_or(LocalSparseOptions{});
  options.dense_timesteps = options.dense_layers = 0;
  options.local_window_size = pattern.window;
  options.block_size = pattern.block_size;
  spec.local_sparse = std::move(options);
}

template <class Video>
Result<SparseAttentionState> state_of(const Video& pattern, const AttentionSpec& spec,
                                      std::optional<BlockWindowGrid> grid, VideoModel model) {
  FOVEA_TRY(MaskMap map,
            MaskMap::create(pattern.frames * pattern.tokens_per_frame, pattern.frames, grid));
  return SparseAttentionState::create(spec, std::move(map), name(model));
}

// The caller's own blocks.
void give(std::shared_ptr<const BlockMask> mask, AttentionSpec& spec, SparseCall& call) {
  if (spec.backend == backend::BLOCK_SPARSE_ATTN) {
    BlockSparseOptions options = spec.block_sparse.value_or(BlockSparseOptions{});
    options.selection = "mask";
    spec.block_sparse = std::move(options);
  }
  call.given = call.mask = std::move(mask);
}

}  // namespace

Result<SparseCall> make_sparse_call(const Problem& problem, const AttentionConfig& config,
                                    const LayerOptions& layer, const AttentionTensors& tensors,
                                    Executor& executor) {
  FOVEA_TRY(const sparse::Pattern pattern, sparse::read_pattern(problem));
  if (std::holds_alternative<ListShape>(pattern)) {
    return Error{ErrorCode::invalid_problem,
                 "sparse=mask stands for block lists that come with a call; a problem string has "
                 "none (use random, radial, local or topk)",
                 {}};
  }
  SparseCall call;
  call.config = config;
  AttentionSpec& spec = spec_of(call.config, layer, pattern);
  if (const auto* topk = std::get_if<BlockTopk>(&pattern)) {
    BlockSparseOptions options;
    options.sparsity = topk->sparsity;
    options.block_size = topk->block_size;
    options.protected_prefix = topk->protected_prefix;
    FOVEA_TRY(BlockMask chosen, select_blocks(*topk, tensors, problem, executor));
    auto mask = std::make_shared<const BlockMask>(std::move(chosen));
    if (spec.backend != backend::BLOCK_SPARSE_ATTN && spec.backend != backend::SPARGE_ATTN) {
      give(std::move(mask), spec, call);
      return call;
    }
    spec.block_sparse = std::move(options);
    call.mask = std::move(mask);
    return call;
  }
  FOVEA_TRY(std::shared_ptr<const BlockMask> mask, sparse::planned_mask(pattern));
  const auto* radial = std::get_if<RadialPattern>(&pattern);
  const auto* local = std::get_if<LocalWindowPattern>(&pattern);
  if (radial != nullptr && spec.backend == backend::RADIAL_ATTN) {
    set_options(*radial, spec);
    FOVEA_TRY(call.state, state_of(*radial, spec, {}, radial->model));
    call.mask = std::move(mask);
  } else if (local != nullptr && spec.backend == backend::LOCAL_SPARSE_ATTN) {
    set_options(*local, spec);
    FOVEA_TRY(call.state, state_of(*local, spec, local->grid, VideoModel::wan));
    call.mask = std::move(mask);
  } else {
    give(std::move(mask), spec, call);
  }
  return call;
}

}  // namespace fovea::validation
