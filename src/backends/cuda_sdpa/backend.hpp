// builtin:cuda_sdpa, behind TORCH_SDPA on CUDA: the plain kernel. The table answers in every build.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_cuda_sdpa_backend();

}  // namespace fovea::backends
