#include "src/platform/map_reader.hpp"

#include <algorithm>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::platform {

using config::Value;

MapReader::MapReader(const Value& node, config::Path path, config::Problems& problems)
    : node_(node), path_(std::move(path)), problems_(problems) {
  if (!node_.is_object()) problems_.mismatch(path_, "a map", node_);
}

const Value* MapReader::member(std::string_view key, Presence presence) {
  known_.push_back(key);
  if (!node_.is_object()) return nullptr;
  const Value* value = node_.find(key);
  if (value == nullptr && presence == Presence::required)
    problems_.add(path_, ReasonCode::option_value, text::concat("lacks ", key), {},
                  std::string(key));
  return value;
}

std::string MapReader::text(std::string_view key, Presence presence) {
  const Value* value = member(key, presence);
  if (value == nullptr) return {};
  if (value->is_string() && !text::trim(value->text).empty()) return value->text;
  problems_.mismatch(path(key), "a text that is not empty", *value);
  return {};
}

int64_t MapReader::integer(std::string_view key, int64_t low, int64_t high, Presence presence,
                           int64_t otherwise) {
  const Value* value = member(key, presence);
  if (value == nullptr) return otherwise;
  if (value->kind == Value::Kind::integer && value->integer >= low && value->integer <= high)
    return value->integer;
  problems_.mismatch(path(key), text::concat("an integer from ", low, " to ", high), *value);
  return otherwise;
}

bool MapReader::flag(std::string_view key, bool otherwise) {
  const Value* value = member(key, Presence::optional);
  if (value == nullptr) return otherwise;
  if (value->kind == Value::Kind::boolean) return value->boolean;
  problems_.mismatch(path(key), "true or false", *value);
  return otherwise;
}

size_t MapReader::word(std::string_view key, std::span<const std::string_view> words) {
  const Value* value = member(key, Presence::required);
  if (value == nullptr) return 0;
  const auto found =
      value->is_string() ? std::find(words.begin(), words.end(), value->text) : words.end();
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  problems_.mismatch(path(key), text::join(words), *value,
                     value->is_string() ? text::suggestion(value->text, words) : std::string());
  return 0;
}

const std::vector<Value>* MapReader::list(std::string_view key, std::string_view accepted,
                                          Presence presence) {
  const Value* value = member(key, presence);
  if (value == nullptr) return nullptr;
  if (value->kind == Value::Kind::array && !value->items.empty()) return &value->items;
  problems_.mismatch(path(key), accepted, *value);
  return nullptr;
}

std::vector<std::string_view> MapReader::given() const {
  std::vector<std::string_view> keys;
  for (const std::string_view key : known_)
    if (has(key)) keys.push_back(key);
  return keys;
}

void MapReader::finish() {
  if (!node_.is_object()) return;
  for (const std::string& key : node_.keys) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string known = text::join(known_);
    problems_.add(path(key), ReasonCode::option_value,
                  text::concat("unknown key; known here: ", known.empty() ? "none" : known,
                               text::suggestion(key, known_)),
                  key, known);
  }
}

void read_sources(MapReader& reader, std::string_view key,
                  const std::vector<std::string_view>& values, config::Problems& problems) {
  const Value* node = reader.member(key, Presence::optional);
  if (node == nullptr) return;
  MapReader sources(*node, reader.path(key), problems);
  for (const std::string_view value : values) sources.text(value);
  sources.finish();
}

}  // namespace fovea::platform
