#include "fovea/libraries.hpp"

#include <utility>

#include "src/cuda_device/cudnn_library.hpp"

namespace fovea {

Status set_cudnn_library(std::string file) { return cuda::set_cudnn_file(std::move(file)); }

}  // namespace fovea
