// extra.<NAME>: options of backends that plugins registered.
#pragma once

#include "fovea/config.hpp"
#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

// The map under `extra` into spec.extra, with registered defaults filled in.
void read_extra(const Value& node, const Path& path, AttentionSpec& spec, Problems& problems);

// The same checks for a spec made by hand.
void check_extra_values(const AttentionSpec& spec, const Path& path, Problems& problems);

}  // namespace fovea::config
