// Access to the devices of a platform that plugins give.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fovea/device_facts.hpp"
#include "fovea/plugin.h"

namespace fovea::plugin {

// An access whose entries were checked.
struct DeviceAccess {
  std::string who;  // file of the plugin, or the host program; for messages
  std::string platform;
  fovea_device_access calls{};

  bool captures() const noexcept { return calls.capture != nullptr; }
};

// Error not_available: null, wrong version or size, a missing entry, some of the entries of
// captures without the others.
Result<DeviceAccess> read_access(const fovea_device_access* given, std::string_view who);

// Makes the access known for its platform in place of an earlier one. Error not_available for a
// platform that nobody knows. Thread-safe.
Status add(DeviceAccess access);
// Thread-safe.
std::optional<DeviceAccess> find_access(PlatformId platform);

}  // namespace fovea::plugin
