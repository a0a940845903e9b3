// builtin:cpu_flash, behind FLASH_ATTN and TORCH_SDPA on the CPU.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_cpu_flash_backend();

}  // namespace fovea::backends
