#include "src/config/extra_reader.hpp"

#include <string>
#include <utility>
#include <vector>

#include "src/config/fields.hpp"
#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"

namespace fovea::config {
namespace {

// The registered fields of one name, as views of a table that the object keeps alive.
class Table {
 public:
  static std::optional<Table> of(std::string_view owner) {
    const auto backend = parse_backend(owner);
    if (!backend) return {};
    auto fields = extra_fields(*backend);
    if (!fields) return {};
    return Table(*backend, std::move(*fields));
  }

  BackendName owner() const noexcept { return owner_; }
  const std::vector<OptionField>& fields() const noexcept { return fields_; }

  // The value as it is kept, or a problem.
  std::optional<Value> read(std::string_view key, const Value& value, const Path& path,
                            Problems& problems) const {
    std::vector<std::string_view> names;
    for (const OptionField& field : fields_) {
      names.push_back(field.name);
      if (field.name != key) continue;
      std::vector<std::string_view> choices;
      return read_value(view(field, choices), value, path, problems);
    }
    problems.add(
        path.at(value), ReasonCode::option_value,
        text::concat("unknown key; known here: ", names.empty() ? "none" : text::join(names),
                     text::suggestion(key, names)),
        std::string(key), text::join(names));
    return {};
  }

 private:
  Table(BackendName owner, std::vector<OptionField> fields)
      : owner_(owner), fields_(std::move(fields)) {}

  BackendName owner_;
  std::vector<OptionField> fields_;
};

void not_registered(std::string_view owner, const Path& path, Problems& problems) {
  std::vector<std::string> known;
  for (BackendName backend : all_backends()) {
    if (extra_fields(backend)) known.push_back(name(backend));
  }
  problems.add(
      path, ReasonCode::option_owner,
      text::concat("no options are registered at run time under this name; registered: ",
                   known.empty() ? "none" : text::join(known), text::suggestion(owner, known)),
      std::string(owner), text::join(known));
}

}  // namespace

void read_extra(const Value& node, const Path& path, AttentionSpec& spec, Problems& problems) {
  if (!node.is_object()) {
    problems.mismatch(path, "a map from a backend registered at run time to its options", node);
    return;
  }
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const Value& options = node.items[i];
    const Path place = path / node.keys[i];
    if (is_removal(options)) continue;
    const auto table = Table::of(node.keys[i]);
    if (!table) {
      not_registered(node.keys[i], place.at(options), problems);
      continue;
    }
    if (!options.is_object()) {
      problems.mismatch(place, "a map of options", options);
      continue;
    }
    ExtraOptions& out = spec.extra[name(table->owner())];
    for (const OptionField& field : table->fields()) {
      if (!field.default_value.empty()) out.emplace(field.name, field.default_value);
    }
    for (size_t k = 0; k < options.keys.size(); ++k) {
      const std::string& key = options.keys[k];
      if (is_removal(options.items[k])) continue;
      const auto value = table->read(key, options.items[k], place / key, problems);
      if (value) out[key] = write_json(*value);
    }
  }
}

void check_extra_values(const AttentionSpec& spec, const Path& path, Problems& problems) {
  for (const auto& [owner, options] : spec.extra) {
    const Path place = path / "extra" / owner;
    const auto table = Table::of(owner);
    if (!table) {
      not_registered(owner, place, problems);
      continue;
    }
    for (const auto& [key, json] : options) {
      const auto value = read_json(json, key, problems);
      if (!value) {
        problems.add(place / key, ReasonCode::option_value,
                     text::concat(text::quote(json), " is not JSON text"), json);
        continue;
      }
      table->read(key, *value, place / key, problems);
    }
  }
}

}  // namespace fovea::config
