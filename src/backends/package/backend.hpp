// A backend that a package outside this library provides ("package:NAME").
#pragma once

#include <memory>
#include <string_view>

#include "fovea/backend.hpp"

namespace fovea::backends {

// Reports unmigrated for a device that is only described, so that explain can answer for it. On
// this machine it refuses: a package runs through the binding that registers it behind the name.
std::shared_ptr<const Backend> make_package_backend(std::string_view package);

}  // namespace fovea::backends
