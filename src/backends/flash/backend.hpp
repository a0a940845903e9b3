// builtin:flash, behind FLASH_ATTN on CUDA: the best exact kernel family of the device.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_flash_backend();

}  // namespace fovea::backends
