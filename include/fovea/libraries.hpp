// Vendor libraries that are loaded at run time.
#pragma once

#include <string>

#include "fovea/error.hpp"

namespace fovea {

// The libcudnn to load instead of libcudnn.so.9 where the loader finds it, for example the one of
// a Python package. Error invalid_argument once another one is loaded. Thread-safe.
FOVEA_API Status set_cudnn_library(std::string file);

}  // namespace fovea
