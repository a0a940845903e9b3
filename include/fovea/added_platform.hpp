// Platforms that a program or a plugin adds at run time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/platform.hpp"

namespace fovea {

// A platform added at run time: its name, the facts it knows and the policy for given facts.
struct PlatformDefinition {
  std::string name;     // [a-z][a-z0-9_]*
  std::string summary;  // one line
  struct Key {
    std::string key;  // [a-z][a-z0-9_]*
    FactKey::Type type = FactKey::Type::text;
    bool required = false;
    std::string summary;
  };
  std::vector<Key> keys;
  std::function<std::shared_ptr<const Platform>(DeviceFacts)> make;  // never returns null
};

// Makes a platform known to parse_platform, parse_facts and make_platform for the life of the
// process. The same name again replaces the policy and must state the same keys. Error
// invalid_argument: a malformed name or key, a built-in platform, other keys than before, no room
// (kMaxAddedPlatforms). Thread-safe.
inline constexpr size_t kMaxAddedPlatforms = 32;
FOVEA_API Result<PlatformId> add_platform(PlatformDefinition definition);
// Built-in platforms, then added ones. Thread-safe.
FOVEA_API std::vector<PlatformId> all_platforms();
// False for platforms added at run time. Pure.
FOVEA_API bool is_built_in(PlatformId platform) noexcept;

}  // namespace fovea
