// builtin:flash_sm90, behind FLASH_ATTN_3 on Hopper. The table answers in every build.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_flash_sm90_backend();

}  // namespace fovea::backends
