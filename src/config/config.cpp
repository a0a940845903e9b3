#include "fovea/config.hpp"

#include <utility>

#include "src/config/entries.hpp"
#include "src/config/extra_reader.hpp"
#include "src/config/fields.hpp"
#include "src/config/json_reader.hpp"
#include "src/config/rules.hpp"
#include "src/config/spec_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using config::Entries;
using config::Entry;
using config::Path;
using config::Problems;
using config::Value;

// The shorthand and the environment give a name, nothing more.
std::optional<AttentionSpec> read_name(std::string_view text, std::string_view source,
                                       Problems& problems) {
  const auto backend = parse_backend(text);
  if (!backend) {
    problems.add(Path{std::string(source)}, ReasonCode::option_value, backend.error().message,
                 text::quote(text), "a backend name");
    return {};
  }
  AttentionSpec spec;
  spec.backend = *backend;
  config::add_implied_blocks(spec);
  return spec;
}

}  // namespace

std::string_view name(Strictness strictness) noexcept {
  switch (strictness) {
    case Strictness::require:
      return "require";
    case Strictness::prefer:
      return "prefer";
  }
  return "unknown";
}

ResolvedSpec AttentionConfig::resolve(std::string_view role, std::string_view category) const {
  if (const auto it = per_role.find(std::string(role)); it != per_role.end()) {
    return {&it->second, text::concat("attention_config.per_role['", role, "']")};
  }
  if (!category.empty()) {
    if (const auto it = per_role.find(std::string(category)); it != per_role.end()) {
      return {&it->second,
              text::concat("attention_config.per_role['", category, "'] (role_category fallback)")};
    }
  }
  if (default_spec) {
    return {&*default_spec,
            default_from_environment ? "environment FOVEA_BACKEND" : "attention_config.default"};
  }
  return {};
}

Status validate(const AttentionSpec& spec) {
  Problems problems;
  const Path root;
  for (const config::Field& field : config::spec_fields()) {
    const Value value = field.get(&spec);
    if (value.kind != Value::Kind::null) {
      config::read_value(field, value, root / field.name, problems);
    }
  }
  for (const config::Block& block : config::blocks()) {
    const void* options = block.find(spec);
    if (options == nullptr) continue;
    for (const config::Field& field : block.fields) {
      const Value value = field.get(options);
      if (value.kind == Value::Kind::null) continue;
      config::read_value(field, value, root / block.name / field.name, problems);
    }
  }
  config::check_extra_values(spec, root, problems);
  config::check_rules(spec, root, problems);
  if (!problems.empty()) return problems.error("attention spec");
  return {};
}

Result<AttentionConfig> build_config(const ConfigSources& sources) {
  const std::string origin = sources.origin.empty() ? "config" : sources.origin;
  Problems problems;
  Entries entries;
  if (!sources.text.empty()) {
    FOVEA_TRY(const Value root, config::read_json(sources.text, origin, problems));
    entries = config::read_entries(root, Path{}, problems);
  }
  AttentionConfig out;
  const std::string_view shorthand = text::trim(sources.backend);
  if (!shorthand.empty()) {
    if (entries.default_entry) {
      problems.add(Path{"--backend"}, ReasonCode::option_value,
                   text::concat("conflicts with the default of ", origin,
                                "; keep one of them (--config.default.backend overrides)"),
                   std::string(shorthand));
    } else {
      entries.default_entry = Entry{Value::of(std::string(shorthand))};
    }
  }
  config::apply_flags(sources.flags, entries, problems);

  // A name from the shorthand is reported under its own flag.
  const bool by_shorthand = !shorthand.empty() && entries.default_entry &&
                            entries.default_entry->value.is_string() &&
                            !entries.default_entry->value.from_flag;
  if (by_shorthand && !config::is_auto(entries.default_entry->value)) {
    entries.default_entry.reset();
    out = config::read_specs(entries, Path{}, problems);
    out.default_spec = read_name(shorthand, "--backend", problems);
  } else {
    out = config::read_specs(entries, Path{}, problems);
  }
  if (!out.default_spec && !out.environment_disabled && problems.empty() && sources.environment) {
    const std::string_view named = text::trim(*sources.environment);
    if (!named.empty() && !text::equal_folded(named, "auto")) {
      out.default_spec = read_name(named, "FOVEA_BACKEND", problems);
      out.default_from_environment = true;
    }
  }
  if (!problems.empty()) return problems.error(origin);
  return out;
}

Result<AttentionConfig> parse_config(std::string_view json) {
  if (text::trim(json).empty()) {
    return Error{
        ErrorCode::invalid_config, "config: there is no text; an empty configuration is {}", {}};
  }
  ConfigSources sources;
  sources.text = json;
  return build_config(sources);
}

}  // namespace fovea
