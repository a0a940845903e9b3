#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

using namespace backend;

constexpr Row kRows[] = {
    with_package(FLASH_ATTN, "musa_flash_attn", "TORCH_SDPA", fact_at_least("cc", {3, 1, 0})),
    by_package(TORCH_SDPA, "torch", {}),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::musa, kRows, kOrder};

}  // namespace

const Policy& musa_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
