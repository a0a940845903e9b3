#include "src/plugin/device_access.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "src/core/text.hpp"
#include "src/plugin/wire.hpp"

namespace fovea::plugin {
namespace {

// What plugins gave; every access holds the lock.
struct Known {
  std::mutex mutex;
  std::map<PlatformId, DeviceAccess> by_platform;
};

Known& known() {
  static Known instance;
  return instance;
}

}  // namespace

Result<DeviceAccess> read_access(const fovea_device_access* given, std::string_view who) {
  DeviceAccess access;
  access.who = who;
  constexpr size_t kRequired = offsetof(fovea_device_access, stream);
  FOVEA_TRY(access.calls, read_struct(given, kRequired, who, "an access to devices"));
  const fovea_device_access& calls = access.calls;
  if (calls.abi_major != FOVEA_PLUGIN_ABI_MAJOR)
    return misbehaved(
        who, text::concat("an access to devices is written for version ", calls.abi_major, ".",
                          calls.abi_minor, " of the plugin interface; this library has ",
                          FOVEA_PLUGIN_ABI_MAJOR));
  if (calls.platform == nullptr)
    return misbehaved(who, "the platform of an access to devices is NULL");
  access.platform = read_text(calls.platform);
  const auto lacks = [&](const char* entry) {
    return misbehaved(
        who, text::concat("the access to ", access.platform, " devices lacks the entry ", entry));
  };
  if (calls.describe == nullptr) return lacks("describe");
  if (calls.allocate == nullptr) return lacks("allocate");
  if (calls.release == nullptr) return lacks("release");
  if (calls.copy == nullptr) return lacks("copy");
  if (calls.synchronise == nullptr) return lacks("synchronise");
  const bool captures = calls.capture != nullptr;
  if (captures != (calls.replay != nullptr) || captures != (calls.drop != nullptr))
    return misbehaved(who, text::concat("the access to ", access.platform,
                                        " devices has some of capture, replay and drop, not all"));
  return access;
}

Status add(DeviceAccess access) {
  const auto platform = parse_platform(access.platform);
  if (!platform) return misbehaved(access.who, "an access to devices: " + platform.error().message);
  std::lock_guard lock(known().mutex);
  known().by_platform.insert_or_assign(*platform, std::move(access));
  return {};
}

std::optional<DeviceAccess> find_access(PlatformId platform) {
  std::lock_guard lock(known().mutex);
  const auto found = known().by_platform.find(platform);
  if (found == known().by_platform.end()) return std::nullopt;
  return found->second;
}

}  // namespace fovea::plugin
