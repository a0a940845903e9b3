// What holds between the fields of one spec: ownership, exclusions, and what each backend narrows.
#pragma once

#include <string>

#include "fovea/config.hpp"
#include "src/config/problems.hpp"

namespace fovea::config {

// True for a backend that computes only part of the scores.
bool is_sparse(BackendName backend) noexcept;

// The option blocks of an entry, joined by commas, which a backend that reads none would ignore.
std::string option_blocks(const AttentionSpec& spec);

// The fields are in range already.
void check_rules(const AttentionSpec& spec, const Path& path, Problems& problems);

}  // namespace fovea::config
