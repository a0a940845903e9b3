#include <nlohmann/json.hpp>
#include <string>

#include "fovea/plugin_loader.hpp"
#include "src/capi/handles.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace {

nlohmann::json to_json(const fovea::LoadedPlugin& plugin) {
  nlohmann::json backends = nlohmann::json::array();
  for (const fovea::PluginBackend& backend : plugin.backends) {
    nlohmann::json row = {
        {"path", backend.path}, {"name", nullptr}, {"replaced", backend.replaced}};
    if (backend.name) row["name"] = fovea::name(*backend.name);
    backends.push_back(std::move(row));
  }
  return {{"file", plugin.file},
          {"name", plugin.name},
          {"version", plugin.version},
          {"platforms", plugin.platforms},
          {"packages", plugin.packages},
          {"accesses", plugin.accesses},
          {"backends", std::move(backends)}};
}

}  // namespace

extern "C" {

int32_t fovea_load_plugin(const char* file, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (file == nullptr) return null_argument("fovea_load_plugin", "file");
    FOVEA_TRY(const fovea::LoadedPlugin plugin, fovea::load_plugin(file));
    if (json != nullptr) *json = fovea::capi::copy(to_json(plugin).dump());
    return {};
  });
}

int32_t fovea_load_plugins_from_environment(char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    const fovea::PluginSearch search = fovea::load_plugins_from_environment();
    nlohmann::json loaded = nlohmann::json::array();
    nlohmann::json failed = nlohmann::json::array();
    for (const fovea::LoadedPlugin& plugin : search.loaded) loaded.push_back(to_json(plugin));
    for (const fovea::Error& failure : search.failed) failed.push_back(failure.message);
    if (json != nullptr)
      *json = fovea::capi::copy(
          nlohmann::json{{"loaded", std::move(loaded)}, {"failed", std::move(failed)}}.dump());
    return {};
  });
}

}  // extern "C"
