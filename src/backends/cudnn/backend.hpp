// CUDNN_ATTN: attention by cuDNN's graphs, with libcudnn loaded at run time.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

// "builtin:cudnn". Keeps the graphs it has built, by device and problem; thread-safe.
std::shared_ptr<const Backend> make_cudnn_backend();

}  // namespace fovea::backends
