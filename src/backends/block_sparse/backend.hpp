// builtin:block_sparse, behind RADIAL_ATTN, LOCAL_SPARSE_ATTN, BLOCK_SPARSE_ATTN and SPARGE_ATTN:
// exact attention over lists of key blocks.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

std::shared_ptr<const Backend> make_block_sparse_backend();

}  // namespace fovea::backends
