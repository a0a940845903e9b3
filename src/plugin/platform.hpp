// A plugin's platform as a Platform of ours.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/added_platform.hpp"
#include "fovea/device.hpp"
#include "fovea/plugin.h"

namespace fovea::plugin {

// A platform whose entries were checked; points into the plugin only through its functions and
// `self`.
struct PlatformEntries {
  std::string plugin;  // file, for messages
  std::string provider;
  std::string name;
  std::string summary;
  DeviceType device = DeviceType::cpu;
  std::vector<PlatformDefinition::Key> keys;
  std::vector<std::string> order;  // names of backends
  fovea_plugin_platform calls{};
};

// Error not_available: null, wrong version or size, a missing entry, an impossible count, an
// unknown code.
Result<PlatformEntries> read_platform(const fovea_plugin_platform* given, std::string_view who,
                                      std::string provider);

// Makes the platform known. Errors: a name of the order that nobody knows; as add_platform().
Status add(PlatformEntries entries);

// The device that holds the tensors of a platform; nothing when no plugin can be handed them.
std::optional<DeviceType> device_of(PlatformId platform);

}  // namespace fovea::plugin
