// The shape of a configuration document: which map belongs to the default and to which role.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "fovea/config.hpp"
#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

// A configuration before its specs are read: a name, a map of spec keys, or a removal.
struct Entry {
  Value value;
  bool guide_form = false;  // written at the top level
};

struct Entries {
  std::optional<Entry> default_entry;
  std::map<std::string, Entry> per_role;  // by role, nested maps joined with dots
};

// Splits a document that stands at `base`. Nested role maps are flattened; unknown keys, mixed and
// empty maps are problems.
Entries read_entries(const Value& root, const Path& base, Problems& problems);

// Lays flags over the entries: "default.backend", "per_role.<role>.<spec path>", or the guide's
// keys.
void apply_flags(std::span<const ConfigFlag> flags, Entries& entries, Problems& problems);

// The specs of all entries. Removed entries leave nothing; problems leave nothing either.
AttentionConfig read_specs(const Entries& entries, const Path& base, Problems& problems);

}  // namespace fovea::config
