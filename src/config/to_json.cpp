#include <string>
#include <utility>

#include "fovea/config.hpp"
#include "src/config/fields.hpp"
#include "src/config/json_reader.hpp"
#include "src/config/spec_hash.hpp"
#include "src/config/value.hpp"

namespace fovea {
namespace config {
namespace {

bool same(const Value& a, const Value& b) { return write_json(a) == write_json(b); }

}  // namespace

Value to_value(const AttentionSpec& spec) {
  Value out = Value::object();
  const AttentionSpec defaults;
  for (const Field& field : spec_fields()) {
    Value value = field.get(&spec);
    const bool always = field.name == "backend" || field.name == "strictness";
    if (value.kind == Value::Kind::null || (!always && same(value, field.get(&defaults)))) continue;
    out.set(field.name, std::move(value));
  }
  for (const Block& block : blocks()) {
    const void* options = block.find(spec);
    if (options == nullptr) continue;
    Value& map = out.set(block.name, Value::object());
    for (const Field& field : block.fields) {
      Value value = field.get(options);
      if (value.kind != Value::Kind::null) map.set(field.name, std::move(value));
    }
  }
  if (!spec.extra.empty()) {
    Value& extra = out.set("extra", Value::object());
    for (const auto& [owner, options] : spec.extra) {
      Value& map = extra.set(owner, Value::object());
      for (const auto& [key, json] : options) {
        Problems ignored;
        map.set(key, read_json(json, key, ignored).value_or(Value::of(json)));
      }
    }
  }
  return out;
}

Value to_value(const AttentionConfig& config) {
  Value out = Value::object();
  if (config.default_spec) {
    out.set("default", to_value(*config.default_spec));
  } else if (config.environment_disabled) {
    out.set("default", Value::of(std::string("auto")));
  }
  if (!config.per_role.empty()) {
    Value& roles = out.set("per_role", Value::object());
    for (const auto& [role, spec] : config.per_role) roles.set(role, to_value(spec));
  }
  return out;
}

uint64_t spec_hash(const AttentionSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : to_json(spec)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace config

std::string to_json(const AttentionConfig& config) {
  return config::write_json(config::to_value(config));
}

std::string to_json(const AttentionSpec& spec) {
  return config::write_json(config::to_value(spec));
}

}  // namespace fovea
