// The guide's own form of a configuration: attn_impl with a sparse_config.
#pragma once

#include "fovea/config.hpp"
#include "src/config/problems.hpp"

namespace fovea::config {

// Moves the guide's sparse options into the spec's own block. A contradiction between sparse_impl
// and the backend is a problem; `implied_backend` says that no attn_impl was written.
void apply_sparse_config(const SparseAttentionConfig& sparse, bool implied_backend,
                         const Path& path, AttentionSpec& spec, Problems& problems);

// In the guide's form a sparse backend needs its options spelt out.
void check_sparse_config_given(const AttentionSpec& spec, const Path& path, Problems& problems);

}  // namespace fovea::config
