// Version of this library, the same as the project's in CMake.
#pragma once

#include "fovea/error.hpp"

#define FOVEA_VERSION_MAJOR 0
#define FOVEA_VERSION_MINOR 1
#define FOVEA_VERSION_PATCH 0

namespace fovea {

// "0.1.0". Static storage.
FOVEA_API const char* version() noexcept;

}  // namespace fovea
