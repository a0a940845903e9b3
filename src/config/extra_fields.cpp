#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "fovea/option_fields.hpp"
#include "src/config/fields.hpp"
#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

// The tables that plugins registered; they live as long as the process, like the names.
struct Tables {
  std::shared_mutex mutex;
  std::map<BackendName, std::vector<OptionField>> fields;
};

Tables& tables() {
  static Tables tables;
  return tables;
}

bool valid_name(std::string_view name) {
  if (name.empty() || name.front() < 'a' || name.front() > 'z') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// What is wrong with a field, or nothing.
std::string fault(const OptionField& field) {
  if (!valid_name(field.name)) return "the name must be [a-z][a-z0-9_]*";
  switch (field.type) {
    case OptionType::boolean:
    case OptionType::integer:
    case OptionType::number:
    case OptionType::text:
    case OptionType::choice:
      break;
    case OptionType::backend:
    case OptionType::layers:
      return "the type must be boolean, integer, number, text or choice";
    default:
      return "the type is unknown";
  }
  if (field.type == OptionType::choice && field.choices.empty()) return "a choice needs choices";
  const double low = field.minimum.value_or(-Field::kNoLimit);
  const double high = field.maximum.value_or(Field::kNoLimit);
  if (!(low <= high)) return "minimum and maximum contradict";
  if (field.default_value.empty()) return {};
  Problems problems;
  std::vector<std::string_view> choices;
  const auto value = read_json(field.default_value, "default", problems);
  if (!value) return "the default is not JSON";
  read_value(view(field, choices), *value, Path{"default"}, problems);
  return problems.empty() ? std::string{} : problems.error(field.name).message;
}

}  // namespace

std::optional<std::vector<OptionField>> extra_fields(BackendName backend) {
  Tables& all = tables();
  const std::shared_lock lock(all.mutex);
  const auto it = all.fields.find(backend);
  if (it == all.fields.end()) return {};
  return it->second;
}

Field view(const OptionField& field, std::vector<std::string_view>& choices) {
  choices.assign(field.choices.begin(), field.choices.end());
  Field out{field.name, field.type, field.summary, field.minimum.value_or(-Field::kNoLimit),
            field.maximum.value_or(Field::kNoLimit)};
  out.choices = choices;
  return out;
}

}  // namespace config

std::string_view name(OptionType type) noexcept {
  switch (type) {
    case OptionType::boolean:
      return "boolean";
    case OptionType::integer:
      return "integer";
    case OptionType::number:
      return "number";
    case OptionType::text:
      return "text";
    case OptionType::choice:
      return "choice";
    case OptionType::backend:
      return "backend";
    case OptionType::layers:
      return "layers";
  }
  return "unknown";
}

Status register_option_fields(BackendName backend, std::vector<OptionField> fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    std::string fault = config::fault(fields[i]);
    for (size_t j = 0; j < i && fault.empty(); ++j) {
      if (fields[j].name == fields[i].name) fault = "the name is given twice";
    }
    if (fault.empty()) continue;
    return Error{
        ErrorCode::invalid_argument,
        text::concat("option ", text::quote(fields[i].name), " of ", name(backend), ": ", fault),
        {}};
  }
  config::Tables& all = config::tables();
  const std::unique_lock lock(all.mutex);
  all.fields[backend] = std::move(fields);
  return {};
}

void clear_option_fields(BackendName backend) {
  config::Tables& all = config::tables();
  const std::unique_lock lock(all.mutex);
  all.fields.erase(backend);
}

namespace {

OptionFieldInfo describe(const config::Field& field, const config::Value& initial) {
  OptionFieldInfo info{std::string(field.name),   field.type, config::accepted(field), {}, {},
                       std::string(field.summary)};
  info.owners.assign(field.owners.begin(), field.owners.end());
  if (initial.kind != config::Value::Kind::null) info.default_value = write_json(initial);
  return info;
}

}  // namespace

std::vector<OptionBlockInfo> option_blocks() {
  std::vector<OptionBlockInfo> out;
  OptionBlockInfo& spec_info =
      out.emplace_back(OptionBlockInfo{{}, {}, {}, "The entry for one role."});
  AttentionSpec spec;
  for (const config::Field& field : config::spec_fields()) {
    // The backend has no default: an entry without one is refused.
    const bool required = field.name == "backend";
    spec_info.fields.push_back(describe(field, required ? config::Value{} : field.get(&spec)));
  }
  for (const config::Block& block : config::blocks()) {
    OptionBlockInfo& info = out.emplace_back(
        OptionBlockInfo{std::string(block.name), {}, {}, std::string(block.summary)});
    info.owners.assign(block.owners.begin(), block.owners.end());
    const void* defaults = block.emplace(spec);
    for (const config::Field& field : block.fields) {
      info.fields.push_back(describe(field, field.get(defaults)));
    }
  }
  for (BackendName backend : all_backends()) {
    const auto fields = config::extra_fields(backend);
    if (!fields) continue;
    OptionBlockInfo& info = out.emplace_back(
        OptionBlockInfo{"extra." + name(backend), {backend}, {}, "Registered at run time."});
    for (const OptionField& field : *fields) {
      std::vector<std::string_view> choices;
      info.fields.push_back(describe(config::view(field, choices), {}));
      info.fields.back().default_value = field.default_value;
    }
  }
  return out;
}

}  // namespace fovea
