// The option table that a plugin's backend declares.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/option_fields.hpp"
#include "fovea/plugin.h"

namespace fovea::plugin {

// The options of one backend. Error not_available: an impossible count, null, a wrong size, an
// unknown type. Names and ranges are judged by register_option_fields().
Result<std::vector<OptionField>> read_options(const fovea_plugin_backend& backend,
                                              const std::string& name, std::string_view who);

}  // namespace fovea::plugin
