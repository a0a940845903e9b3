// One map of a document to one AttentionSpec.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "fovea/config.hpp"
#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

// The keys of a spec. A map with any of them is a spec; other maps under per_role hold roles.
std::span<const std::string_view> spec_keys();
bool is_spec_key(std::string_view key);
// The keys that the guide's form writes at the top level.
std::span<const std::string_view> guide_keys() noexcept;

// Gives a spec the default block of its backend, for backends whose choice is the opt-in.
void add_implied_blocks(AttentionSpec& spec);

struct ReadSpec {
  std::optional<AttentionSpec> spec;  // nothing when removed or faulty
  bool removed = false;               // backend is auto or null
  bool is_auto = false;               // backend is auto
};

// `node` is a map. `guide_form`: written at the top level, where an absent attn_impl is TORCH_SDPA.
ReadSpec read_spec(const Value& node, bool guide_form, const Path& path, Problems& problems);

}  // namespace fovea::config
