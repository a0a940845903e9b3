// Normalised forms of specs: as Values and as cache keys.
#pragma once

#include <cstdint>

#include "fovea/config.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

Value to_value(const AttentionSpec& spec);
Value to_value(const AttentionConfig& config);

// Equal specs have equal hashes; FNV-1a over the normalised JSON.
uint64_t spec_hash(const AttentionSpec& spec);

}  // namespace fovea::config
