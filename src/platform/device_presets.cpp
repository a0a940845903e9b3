// Named sets of facts, for questions about machines that are not at hand.
#include <optional>
#include <utility>

#include "fovea/device_facts.hpp"
#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"
#include "src/platform/map_reader.hpp"
#include "src/platform/preset_data.hpp"

namespace fovea {
namespace {

using config::Value;
using platform::MapReader;
using platform::Presence;

// A fact as the text that --facts takes; nothing when it is no scalar, or holds a comma.
std::optional<std::string> fact_text(const Value& value) {
  std::string text;
  switch (value.kind) {
    case Value::Kind::boolean:
      text = value.boolean ? "1" : "0";
      break;
    case Value::Kind::integer:
      text = std::to_string(value.integer);
      break;
    case Value::Kind::string:
      text = value.text;
      break;
    default:
      return std::nullopt;
  }
  return text.find(',') == std::string::npos ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

Result<DevicePreset> parse_device_preset(std::string_view json, std::string_view origin) {
  config::Problems problems;
  FOVEA_TRY(const Value node, config::read_json(json, origin, problems));
  MapReader reader(node, {}, problems);
  DevicePreset preset;
  preset.name = reader.text("name");
  preset.summary = reader.text("summary", Presence::optional);
  const std::string platform = reader.text("platform");
  const Value* facts = reader.member("facts", Presence::required);
  std::vector<std::string_view> values;
  if (facts != nullptr && !facts->is_object()) {
    problems.mismatch(reader.path("facts"), "a map", *facts);
  } else if (facts != nullptr) {
    for (size_t i = 0; i < facts->keys.size(); ++i) {
      const std::string& key = facts->keys[i];
      values.push_back(key);
      const std::optional<std::string> text = fact_text(facts->items[i]);
      if (!text)
        problems.mismatch(reader.path("facts") / key,
                          "a text without commas, an integer, true or false", facts->items[i]);
      else
        preset.facts += text::concat(preset.facts.empty() ? "" : ",", key, '=', *text);
    }
  }
  platform::read_sources(reader, "sources", values, problems);
  reader.finish();
  if (!problems.empty()) return problems.error(origin);
  const auto located = [&](Error error) {
    error.message = text::concat(origin, ": ", error.message);
    return error;
  };
  Result<PlatformId> id = parse_platform(platform);
  if (!id) return located(std::move(id).error());
  preset.platform = *id;
  Result<DeviceFacts> read = parse_facts(preset.platform, preset.facts);
  if (!read) return located(std::move(read).error());
  return preset;
}

const std::vector<DevicePreset>& device_presets() {
  // The files that came with the source; a test reads every one of them.
  static const std::vector<DevicePreset> presets = [] {
    std::vector<DevicePreset> parsed;
    for (const platform::PresetFile& file : platform::device_files())
      if (auto preset = parse_device_preset(file.text, file.path))
        parsed.push_back(*std::move(preset));
    return parsed;
  }();
  return presets;
}

Result<DevicePreset> find_device_preset(std::string_view name) {
  const std::string_view word = text::trim(name);
  std::vector<std::string_view> names;
  for (const DevicePreset& preset : device_presets()) {
    if (text::equal_folded(word, preset.name)) return preset;
    names.push_back(preset.name);
  }
  return Error{ErrorCode::invalid_facts,
               text::concat("unknown device preset ", text::quote(word), "; presets are ",
                            text::join(names), text::suggestion(word, names)),
               {}};
}

Result<DeviceFacts> preset_facts(std::string_view name) {
  FOVEA_TRY(const DevicePreset preset, find_device_preset(name));
  return parse_facts(preset.platform, preset.facts);
}

}  // namespace fovea
