// Reads one JSON map member by member; what nobody asked for is an unknown key.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::platform {

enum class Presence : uint8_t { required, optional };

// What is wrong goes to `problems`, and the read value is then a default one. `node`, `problems`
// and the keys must outlive the reader.
class MapReader {
 public:
  MapReader(const config::Value& node, config::Path path, config::Problems& problems);

  // Null when it is absent or the node is no map.
  const config::Value* member(std::string_view key, Presence presence);
  config::Path path(std::string_view key) const { return path_ / key; }

  // Not blank.
  std::string text(std::string_view key, Presence presence = Presence::required);
  // `otherwise` when it is absent.
  int64_t integer(std::string_view key, int64_t low, int64_t high,
                  Presence presence = Presence::required, int64_t otherwise = 0);
  bool flag(std::string_view key, bool otherwise);
  // The index of the word; 0 when it is absent or wrong.
  size_t word(std::string_view key, std::span<const std::string_view> words);
  // The items of a list, at least one; null when it is absent or wrong.
  const std::vector<config::Value>* list(std::string_view key, std::string_view accepted,
                                         Presence presence = Presence::required);

  // Reports the members that were never asked for. Call it last.
  void finish();
  // The members that were asked for and are there.
  std::vector<std::string_view> given() const;
  bool has(std::string_view key) const { return node_.find(key) != nullptr; }

 private:
  const config::Value& node_;
  config::Path path_;
  config::Problems& problems_;
  std::vector<std::string_view> known_;
};

// Reads the map of `key`, whose members say where each of the `values` comes from: a text for every
// one of them and for nothing else. It may be absent.
void read_sources(MapReader& reader, std::string_view key,
                  const std::vector<std::string_view>& values, config::Problems& problems);

}  // namespace fovea::platform
