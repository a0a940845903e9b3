// The plugins of this process, by file.
#pragma once

#include <memory>
#include <string_view>

#include "fovea/backend.hpp"
#include "fovea/plugin_loader.hpp"

namespace fovea::plugin {

// The backend that "FILE#NAME" names; loads the file when it is not loaded, and registers nothing.
// Errors as load_plugin; not_available lists the backends of the file when NAME is not one.
Result<std::shared_ptr<const Backend>> load_named(std::string_view rest);

}  // namespace fovea::plugin
