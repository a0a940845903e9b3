// builtin:flash_sm80, behind FLASH_ATTN_2 and, where Hopper's kernel cannot read the problem,
// behind FLASH_ATTN. The table answers in every build.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_flash_sm80_backend();

}  // namespace fovea::backends
