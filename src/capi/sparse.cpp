#include "fovea/sparse.hpp"

#include "src/capi/handles.hpp"
#include "src/core/text.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace fovea::capi {
namespace {

fovea_tensor list_view(const void* data, DType dtype, std::initializer_list<int64_t> shape) {
  fovea_tensor t{};
  t.data = const_cast<void*>(data);  // inputs are never written
  t.device_type = static_cast<int32_t>(DeviceType::cpu);
  t.dtype_code = dtype.code;
  t.dtype_bits = dtype.bits;
  t.dtype_lanes = dtype.lanes;
  t.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  int64_t stride = 1;
  for (int32_t axis = t.rank - 1; axis >= 0; --axis) {
    t.stride[axis] = stride;
    stride *= t.shape[axis];
  }
  return t;
}

}  // namespace
}  // namespace fovea::capi

extern "C" {

int32_t fovea_mask_map_create(int64_t video_token_num, int64_t num_frame, int64_t grid_height,
                              int64_t grid_width, fovea_mask_map** map, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (map == nullptr) return null_argument("fovea_mask_map_create", "map");
    std::optional<fovea::BlockWindowGrid> grid;
    if (grid_height != 0 || grid_width != 0) grid = {grid_height, grid_width};
    FOVEA_TRY(fovea::MaskMap made, fovea::MaskMap::create(video_token_num, num_frame, grid));
    *map = new fovea_mask_map{std::move(made)};
    return {};
  });
}

void fovea_mask_map_free(fovea_mask_map* map) { delete map; }

int32_t fovea_sparse_state_create(const fovea_config* config, const char* role,
                                  const char* category, const fovea_mask_map* map,
                                  const char* model_type, fovea_sparse_state** state,
                                  fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_sparse_state_create";
    if (config == nullptr) return null_argument(kFunction, "config");
    if (map == nullptr) return null_argument(kFunction, "map");
    if (state == nullptr) return null_argument(kFunction, "state");
    const std::string asked = role == nullptr ? "self" : role;
    const fovea::ResolvedSpec resolved =
        config->config.resolve(asked, category == nullptr ? "" : category);
    if (resolved.spec == nullptr)
      return fovea::Error{fovea::ErrorCode::invalid_config,
                          fovea::text::concat(kFunction,
                                              ": the configuration chooses nothing for "
                                              "role '",
                                              asked, "'; a state needs a sparse backend there"),
                          {}};
    FOVEA_TRY(fovea::SparseAttentionState made,
              fovea::SparseAttentionState::create(*resolved.spec, map->map,
                                                  model_type == nullptr ? "wan" : model_type));
    std::string dense = name(made.dense_backend());
    *state = new fovea_sparse_state{std::move(made), std::move(dense)};
    return {};
  });
}

void fovea_sparse_state_free(fovea_sparse_state* state) { delete state; }

int32_t fovea_sparse_state_update(fovea_sparse_state* state, int64_t numeral_timestep,
                                  int64_t layer_idx, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (state == nullptr) return null_argument("fovea_sparse_state_update", "state");
    const auto given = [](int64_t number) {
      return number == -1 ? std::nullopt : std::optional<int64_t>(number);
    };
    return state->state.update(given(numeral_timestep), given(layer_idx));
  });
}

int32_t fovea_sparse_state_begin_run(fovea_sparse_state* state, int64_t steps, int64_t layers,
                                     fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (state == nullptr) return null_argument("fovea_sparse_state_begin_run", "state");
    return state->state.begin_run(steps, layers);
  });
}

void fovea_sparse_state_position(const fovea_sparse_state* state, int64_t* numeral_timestep,
                                 int64_t* layer_idx) {
  if (numeral_timestep != nullptr)
    *numeral_timestep = state == nullptr ? 0 : state->state.numeral_timestep();
  if (layer_idx != nullptr) *layer_idx = state == nullptr ? 0 : state->state.layer_idx();
}

int32_t fovea_sparse_state_fix(fovea_sparse_state* state, const char* dense_cause,
                               fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_sparse_state_fix";
    if (state == nullptr) return null_argument(kFunction, "state");
    if (dense_cause == nullptr) return null_argument(kFunction, "dense_cause");
    using enum fovea::DenseCause;
    for (const fovea::DenseCause cause :
         {none, not_sparse, first_steps, last_steps, first_layers, skipped_layer}) {
      if (fovea::name(cause) != dense_cause) continue;
      state->state.fix(cause);
      return {};
    }
    return fovea::Error{
        fovea::ErrorCode::invalid_argument,
        fovea::text::concat(kFunction, ": dense_cause '", dense_cause,
                            "' is not known (accepted: none, not_sparse, first_steps, last_steps, "
                            "first_layers, skipped_layer)"),
        {}};
  });
}

int32_t fovea_sparse_state_should_use_dense(const fovea_sparse_state* state) {
  return state == nullptr || state->state.should_use_dense() ? 1 : 0;
}

const char* fovea_sparse_state_dense_cause(const fovea_sparse_state* state) {
  return state == nullptr ? "not_sparse" : fovea::name(state->state.dense_cause()).data();
}

const char* fovea_sparse_state_sparsity_type(const fovea_sparse_state* state) {
  return state == nullptr ? "dense" : state->state.sparsity_type().data();
}

const char* fovea_sparse_state_dense_backend(const fovea_sparse_state* state) {
  return state == nullptr ? "" : state->dense_backend.c_str();
}

int32_t fovea_sparse_state_mask(const fovea_sparse_state* state, int64_t seq_len,
                                fovea_block_mask** mask, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (state == nullptr) return null_argument("fovea_sparse_state_mask", "state");
    if (mask == nullptr) return null_argument("fovea_sparse_state_mask", "mask");
    FOVEA_TRY(std::shared_ptr<const fovea::BlockMask> built, state->state.mask(seq_len));
    *mask = new fovea_block_mask{std::move(built)};
    return {};
  });
}

int32_t fovea_block_mask_create(const fovea_block_shape* shape, const uint8_t* matrix, size_t size,
                                fovea_block_mask** mask, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_block_mask_create";
    if (matrix == nullptr) return null_argument(kFunction, "matrix");
    if (mask == nullptr) return null_argument(kFunction, "mask");
    FOVEA_TRY(const fovea_block_shape s,
              fovea::capi::sized(shape, kFunction, "shape", fovea_block_shape{}));
    const fovea::BlockMaskShape covers{s.seq_q,
                                       s.seq_kv,
                                       s.block_q == 0 ? 128 : s.block_q,
                                       s.block_kv == 0 ? 128 : s.block_kv,
                                       s.batch == 0 ? 1 : s.batch,
                                       s.heads == 0 ? 1 : s.heads};
    FOVEA_TRY(fovea::BlockMask built,
              fovea::BlockMask::from_matrix(covers, std::span(matrix, size)));
    *mask = new fovea_block_mask{std::make_shared<const fovea::BlockMask>(std::move(built))};
    return {};
  });
}

int32_t fovea_block_mask_lists(const fovea_block_mask* mask, fovea_block_shape* shape,
                               fovea_tensor* counts, fovea_tensor* indices, fovea_tensor* partial,
                               fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_block_mask_lists";
    if (mask == nullptr) return null_argument(kFunction, "mask");
    const fovea::BlockMask& m = *mask->mask;
    const fovea::BlockMaskShape& s = m.shape();
    if (shape != nullptr) {
      FOVEA_TRY(const fovea_block_shape sizes,
                fovea::capi::sized<fovea_block_shape>(shape, kFunction, "shape", {}));
      const fovea_block_shape full{sizes.struct_size, s.seq_q, s.seq_kv, s.block_q,
                                   s.block_kv,        s.batch, s.heads};
      std::memcpy(shape, &full, std::min(sizes.struct_size, sizeof full));
    }
    if (counts != nullptr)
      *counts =
          fovea::capi::list_view(m.counts().data(), fovea::kI32, {s.batch, s.heads, m.rows()});
    if (indices != nullptr)
      *indices = fovea::capi::list_view(m.indices().data(), fovea::kI32,
                                        {s.batch, s.heads, m.rows(), m.max_count()});
    if (partial != nullptr) {
      *partial = {};
      if (!m.partial().empty())
        *partial = fovea::capi::list_view(m.partial().data(), fovea::kU8,
                                          {s.batch, s.heads, m.rows(), m.max_count()});
    }
    return {};
  });
}

double fovea_block_mask_density(const fovea_block_mask* mask) {
  return mask == nullptr ? 0 : mask->mask->density();
}

void fovea_block_mask_free(fovea_block_mask* mask) { delete mask; }

}  // extern "C"
