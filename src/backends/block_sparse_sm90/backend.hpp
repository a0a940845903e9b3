// builtin:block_sparse_sm90, behind RADIAL_ATTN, LOCAL_SPARSE_ATTN, BLOCK_SPARSE_ATTN and
// SPARGE_ATTN on Hopper: the exact kernels of flash_sm90 over lists of blocks.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_block_sparse_sm90_backend();

}  // namespace fovea::backends
