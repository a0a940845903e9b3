#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

// The architecture id of the Data Center GPU Max 1100 and 1550, which have no flash kernel.
constexpr Check kNotMax = fact_not_in("arch", {"13136561920"});

using namespace backend;

constexpr Row kRows[] = {
    by_package(FLASH_ATTN, "vllm_xpu_kernels", "TORCH_SDPA", kNotMax),
    by_package(TORCH_SDPA, "torch", {}),
    with_package(SAGE_ATTN, "auto_round", "FLASH_ATTN or TORCH_SDPA"),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::xpu, kRows, kOrder};

}  // namespace

const Policy& xpu_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
