// Loading shared libraries that bring backends and platforms (fovea/plugin.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/error.hpp"

namespace fovea {

// One backend of a loaded plugin.
struct PluginBackend {
  std::string path;                 // "plugin:/opt/lib.so#name", for register_backend
  std::optional<BackendName> name;  // the name that it was put behind; nothing: only by path
  bool replaced = false;            // the name is a built-in one
};

struct LoadedPlugin {
  std::string file;  // absolute
  std::string name;
  std::string version;
  std::vector<PluginBackend> backends;
  std::vector<std::string> platforms;  // that it added
  std::vector<std::string> packages;   // whose kernels it bound
  std::vector<std::string> accesses;   // platforms to whose devices it gives access
};

// Loads a plugin, adds its platforms, binds its packages, puts its backends behind the names they
// declare and registers the fields of their extra.<NAME>; all or none. Logs what was replaced. A
// plugin stays loaded until the process ends; loading it again puts its backends behind their names
// once more. Error invalid_file when there is no such file, not_available with the cause for
// everything the plugin does wrong. Runs the plugin's code. Thread-safe.
FOVEA_API Result<LoadedPlugin> load_plugin(const std::string& file);

// A search of plugin folders.
struct PluginSearch {
  std::vector<LoadedPlugin> loaded;
  std::vector<Error> failed;
};

// Loads every libfovea-backend-*.so of the folders, in their order and by file name. A failure is
// logged as a warning and does not stop the search. Thread-safe.
FOVEA_API PluginSearch load_plugins(const std::vector<std::string>& folders);
// The folders of FOVEA_PLUGIN_PATH, separated by ':'; nothing when it is unset.
FOVEA_API PluginSearch load_plugins_from_environment();

// Makes paths such as "plugin:/opt/lib.so#name" loadable by the registry (fovea/registry.hpp); the
// functions above do it too. Thread-safe.
FOVEA_API Status enable_plugin_paths();

}  // namespace fovea
