// Platforms that were added at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/added_platform.hpp"

namespace fovea::platform {

// One added platform. Lives as long as the process, so views into `name` and `keys` stay valid;
// only `make` may be replaced.
struct AddedPlatform {
  PlatformId id;
  std::string name;
  std::vector<PlatformDefinition::Key> key_texts;
  std::vector<FactKey> keys;  // views into key_texts
};

// Null for a platform that nobody added. Thread-safe.
const AddedPlatform* find_added(PlatformId id) noexcept;
std::vector<std::string_view> added_names();
std::optional<PlatformId> parse_added(std::string_view name);

// The added platform's policy for these facts. Null when the platform is not an added one.
std::shared_ptr<const Platform> make_added(DeviceFacts facts);

}  // namespace fovea::platform
