#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kFlash = "builtin:cpu_flash";
constexpr std::string_view kReference = "builtin:reference";
// The block-list kernel behind the sparse names; empty while this tree has none.
constexpr std::string_view kBlockSparse = "";

constexpr std::string_view kDense = "FLASH_ATTN";

using namespace backend;

constexpr Row kRows[] = {
    tried(own(FLASH_ATTN, kFlash, {})),           tried(own(TORCH_SDPA, kFlash, {})),
    tried(own(REFERENCE, kReference, {})),        own(RADIAL_ATTN, kBlockSparse, kDense),
    own(LOCAL_SPARSE_ATTN, kBlockSparse, kDense), own(SPARGE_ATTN, kBlockSparse, kDense),
    own(BLOCK_SPARSE_ATTN, kBlockSparse, kDense),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::cpu, kRows, kOrder};

}  // namespace

const Policy& cpu_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
