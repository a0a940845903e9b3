#include "src/platform/added_platforms.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "src/core/text.hpp"
#include "src/platform/policy.hpp"

namespace fovea {
namespace platform {
namespace {

// Leaves room for built-in platforms to come.
constexpr uint8_t kFirstAdded = 64;

using Maker = std::function<std::shared_ptr<const Platform>(DeviceFacts)>;

// Process-wide, like the names of backends; every access holds the lock.
struct Added {
  std::mutex mutex;
  std::vector<std::unique_ptr<const AddedPlatform>> platforms;
  std::vector<Maker> makers;  // of the platform with the same index
};

Added& added() {
  static Added instance;
  return instance;
}

bool valid_name(std::string_view name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

// What is wrong with a definition, or nothing.
std::string fault(const PlatformDefinition& definition) {
  if (!valid_name(definition.name))
    return text::concat("the name ", text::quote(definition.name), " is not [a-z][a-z0-9_]*");
  for (const PlatformId id : kAllPlatforms)
    if (fovea::name(id) == definition.name) return "the name is that of a built-in platform";
  for (size_t i = 0; i < definition.keys.size(); ++i) {
    const std::string& key = definition.keys[i].key;
    if (!valid_name(key))
      return text::concat("the fact ", text::quote(key), " is not [a-z][a-z0-9_]*");
    for (size_t j = 0; j < i; ++j)
      if (definition.keys[j].key == key)
        return text::concat("the fact ", text::quote(key), " is given twice");
  }
  if (!definition.make) return "there is no policy";
  return {};
}

bool same_keys(const AddedPlatform& known, const PlatformDefinition& definition) {
  return std::equal(known.key_texts.begin(), known.key_texts.end(), definition.keys.begin(),
                    definition.keys.end(), [](const auto& a, const auto& b) {
                      return a.key == b.key && a.type == b.type && a.required == b.required;
                    });
}

std::unique_ptr<const AddedPlatform> make_entry(PlatformId id, PlatformDefinition& definition) {
  auto entry = std::make_unique<AddedPlatform>();
  entry->id = id;
  entry->name = std::move(definition.name);
  entry->key_texts = std::move(definition.keys);
  for (const PlatformDefinition::Key& key : entry->key_texts)
    entry->keys.push_back({key.key, key.type, key.required, key.summary});
  return entry;
}

}  // namespace

const AddedPlatform* find_added(PlatformId id) noexcept {
  const auto number = static_cast<uint8_t>(id);
  if (number < kFirstAdded) return nullptr;
  Added& all = added();
  std::lock_guard lock(all.mutex);
  const size_t index = number - size_t{kFirstAdded};
  return index < all.platforms.size() ? all.platforms[index].get() : nullptr;
}

std::vector<std::string_view> added_names() {
  Added& all = added();
  std::lock_guard lock(all.mutex);
  std::vector<std::string_view> names;
  for (const auto& entry : all.platforms) names.push_back(entry->name);
  return names;
}

std::optional<PlatformId> parse_added(std::string_view name) {
  Added& all = added();
  std::lock_guard lock(all.mutex);
  for (const auto& entry : all.platforms)
    if (text::equal_folded(entry->name, name)) return entry->id;
  return {};
}

std::shared_ptr<const Platform> make_added(DeviceFacts facts) {
  const AddedPlatform* entry = find_added(facts.platform());
  if (entry == nullptr) return nullptr;
  Maker make;
  {
    Added& all = added();
    std::lock_guard lock(all.mutex);
    make = all.makers[static_cast<uint8_t>(entry->id) - size_t{kFirstAdded}];
  }
  return make(std::move(facts));
}

}  // namespace platform

Result<PlatformId> add_platform(PlatformDefinition definition) {
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::invalid_argument,
                 text::concat("platform ", text::quote(definition.name), ": ", why),
                 {}};
  };
  if (const std::string why = platform::fault(definition); !why.empty()) return refuse(why);
  platform::Added& all = platform::added();
  std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.platforms.size(); ++i) {
    if (all.platforms[i]->name != definition.name) continue;
    if (!platform::same_keys(*all.platforms[i], definition))
      return refuse("it exists with other facts");
    all.makers[i] = std::move(definition.make);
    return all.platforms[i]->id;
  }
  if (all.platforms.size() >= kMaxAddedPlatforms)
    return refuse(text::concat("there are already ", kMaxAddedPlatforms));
  const auto id = static_cast<PlatformId>(platform::kFirstAdded + all.platforms.size());
  all.makers.push_back(std::move(definition.make));
  all.platforms.push_back(platform::make_entry(id, definition));
  return id;
}

std::vector<PlatformId> all_platforms() {
  std::vector<PlatformId> list(std::begin(platform::kAllPlatforms),
                               std::end(platform::kAllPlatforms));
  for (const std::string_view name : platform::added_names())
    list.push_back(*platform::parse_added(name));
  return list;
}

bool is_built_in(PlatformId platform) noexcept {
  return static_cast<uint8_t>(platform) < platform::kFirstAdded;
}

}  // namespace fovea
