// A plugin's backend as a Backend of ours.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/option_fields.hpp"
#include "fovea/plugin.h"
#include "src/plugin/wire.hpp"

namespace fovea::plugin {

// A backend whose entries were checked. Nothing here points into the plugin but its functions and
// `self`.
struct BackendEntries {
  std::string name;          // after '#'
  std::string backend_name;  // empty: none declared
  std::vector<OptionField> options;
  fovea_plugin_backend calls{};
};

// Reads one backend. `who` names the plugin in errors. Error not_available: null, wrong version or
// size, a required entry missing, a malformed name or option.
Result<BackendEntries> read_backend(const fovea_plugin_backend* given, std::string_view who);

// `path` is the registry path, "plugin:/lib.so#name"; `provider` what reports print.
std::shared_ptr<const Backend> make_backend(BackendEntries entries, std::string path,
                                            std::string provider);

// Runs `call`, a callable that enters plugin code; an exception that leaves it becomes an error.
template <class Call>
Status guarded(std::string_view who, std::string_view function, Call&& call) {
  std::string what;
  try {
    call();
    return {};
  } catch (const std::exception& error) {
    what = read_text(error.what());
  } catch (...) {
    what = "an exception of an unknown type";
  }
  return misbehaved(who, std::string(function) + " threw: " + what);
}

}  // namespace fovea::plugin
