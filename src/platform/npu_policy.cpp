#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

using namespace backend;

constexpr Row kRows[] = {
    with_package(FLASH_ATTN, "mindiesd", "TORCH_SDPA"),
    by_package(TORCH_SDPA, "torch", {}),
    with_package(RAINFUSION_ATTN, "mindiesd", "FLASH_ATTN or TORCH_SDPA",
                 head_set({64, 96, 128, 192, 256})),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::npu, kRows, kOrder};

}  // namespace

const Policy& npu_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
