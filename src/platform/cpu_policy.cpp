#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kFlash = "builtin:cpu_flash";
constexpr std::string_view kReference = "builtin:reference";
constexpr std::string_view kBlockSparse = "builtin:block_sparse";

constexpr std::string_view kDense = "FLASH_ATTN";

using namespace backend;

constexpr Row kRows[] = {
    tried(own(FLASH_ATTN, kFlash, {})),
    tried(own(TORCH_SDPA, kFlash, {})),
    tried(own(REFERENCE, kReference, {})),
    tried(own(RADIAL_ATTN, kBlockSparse, kDense)),
    tried(own(LOCAL_SPARSE_ATTN, kBlockSparse, kDense)),
    tried(own(SPARGE_ATTN, kBlockSparse, kDense)),
    tried(own(BLOCK_SPARSE_ATTN, kBlockSparse, kDense)),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::cpu, kRows, kOrder};

}  // namespace

const Policy& cpu_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
