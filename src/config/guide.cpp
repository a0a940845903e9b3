#include "src/config/guide.hpp"

#include "src/config/fields.hpp"
#include "src/config/spec_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

// The sparse_impl that a backend stands for; "none" for the dense ones.
std::string_view impl_of(BackendName backend) {
  if (backend == backend::RADIAL_ATTN) return "radial";
  if (backend == backend::LOCAL_SPARSE_ATTN) return "local";
  return "none";
}

std::string_view backend_of(std::string_view impl) {
  return impl == "radial" ? "RADIAL_ATTN" : impl == "local" ? "LOCAL_SPARSE_ATTN" : "a dense one";
}

// Ranges of a sparse_config made by hand.
void check_fields(const SparseAttentionConfig& sparse, const Path& path, Problems& problems) {
  for (const Field& field : sparse_config_fields()) {
    const Value value = field.get(&sparse);
    if (value.kind != Value::Kind::null) read_value(field, value, path / field.name, problems);
  }
}

Result<AttentionConfig> sparse_attention(std::string_view factory, BackendName backend,
                                         const SparseAttentionConfig& sparse) {
  Problems problems;
  AttentionSpec spec;
  spec.backend = backend;
  spec.strictness = Strictness::prefer;
  spec.from_factory = true;
  check_fields(sparse, Path{}, problems);
  if (problems.empty()) apply_sparse_config(sparse, false, Path{}, spec, problems);
  if (!problems.empty()) return problems.error(factory);
  AttentionConfig config;
  config.default_spec = std::move(spec);
  return config;
}

}  // namespace

void apply_sparse_config(const SparseAttentionConfig& sparse, bool implied_backend,
                         const Path& path, AttentionSpec& spec, Problems& problems) {
  const std::string_view own = impl_of(spec.backend);
  const std::string_view asked = sparse.sparse_impl ? std::string_view(*sparse.sparse_impl) : own;
  if (asked != own) {
    problems.add(path / "sparse_impl", ReasonCode::option_value,
                 text::concat(asked, " contradicts attn_impl ", name(spec.backend),
                              implied_backend ? " (what an absent attn_impl means)" : "",
                              "; set attn_impl to ", backend_of(asked), " or sparse_impl to ", own),
                 std::string(asked), std::string(own));
    return;
  }
  if (own == "radial") {
    RadialOptions& radial = spec.radial.emplace();
    radial.dense_timesteps = sparse.dense_timesteps;
    radial.dense_layers = sparse.dense_layers;
    radial.decay_factor = sparse.decay_factor;
    radial.block_size = sparse.block_size;
    radial.use_sage_attention = sparse.use_sage_attention;
  } else if (own == "local") {
    LocalSparseOptions& local = spec.local_sparse.emplace();
    local.dense_timesteps = sparse.dense_timesteps;
    local.dense_layers = sparse.dense_layers;
    local.local_window_size = sparse.local_window_size;
    local.block_size = sparse.block_size;
    local.use_sage_attention = sparse.use_sage_attention;
  }
}

void check_sparse_config_given(const AttentionSpec& spec, const Path& path, Problems& problems) {
  const bool radial = spec.backend == backend::RADIAL_ATTN && !spec.radial;
  const bool local = spec.backend == backend::LOCAL_SPARSE_ATTN && !spec.local_sparse;
  if (!radial && !local) return;
  problems.add(path / "attn_impl", ReasonCode::option_value,
               text::concat(name(spec.backend),
                            " needs a sparse_config; add sparse_config {\"sparse_impl\": \"",
                            impl_of(spec.backend), "\"}"),
               name(spec.backend));
}

}  // namespace config

Result<AttentionConfig> AttentionConfig::from_guide(const GuideConfig& guide) {
  config::Problems problems;
  const config::Path root;
  AttentionSpec spec;
  spec.backend = guide.attn_impl;
  spec.scale = guide.scale;
  spec.is_causal = guide.is_causal;
  if (!(guide.dropout == 0)) {
    problems.mismatch(root / "dropout", "0", config::Value::of(guide.dropout));
  }
  if (guide.sparse_config) {
    config::check_fields(*guide.sparse_config, root / "sparse_config", problems);
    if (problems.empty()) {
      config::apply_sparse_config(*guide.sparse_config, false, root / "sparse_config", spec,
                                  problems);
    }
  } else {
    config::check_sparse_config_given(spec, root, problems);
  }
  if (!problems.empty()) return problems.error("attention config");
  config::add_implied_blocks(spec);
  FOVEA_CHECK(validate(spec));
  AttentionConfig out;
  out.default_spec = std::move(spec);
  return out;
}

Result<AttentionConfig> AttentionConfig::dense_attention(BackendName backend) {
  AttentionConfig out;
  out.default_spec.emplace().backend = backend;
  if (config::impl_of(backend) != "none") {
    return Error{ErrorCode::invalid_config,
                 text::concat("dense_attention: ", name(backend), " is sparse; use ",
                              backend == backend::RADIAL_ATTN ? "radial_attention"
                                                              : "local_sparse_attention"),
                 {}};
  }
  config::add_implied_blocks(*out.default_spec);
  FOVEA_CHECK(validate(*out.default_spec));
  return out;
}

Result<AttentionConfig> AttentionConfig::radial_attention(const SparseAttentionConfig& sparse) {
  return config::sparse_attention("radial_attention", backend::RADIAL_ATTN, sparse);
}

Result<AttentionConfig> AttentionConfig::local_sparse_attention(
    const SparseAttentionConfig& sparse) {
  return config::sparse_attention("local_sparse_attention", backend::LOCAL_SPARSE_ATTN, sparse);
}

}  // namespace fovea
