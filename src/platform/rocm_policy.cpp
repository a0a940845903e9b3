#include <vector>

#include "fovea/platform.hpp"
#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

constexpr Check kInstinct = fact_in("gfx", {"gfx942", "gfx950"});

using namespace backend;

constexpr Row kRows[] = {
    with_package(FLASH_ATTN, "aiter", "TORCH_SDPA", kInstinct),
    by_package(TORCH_SDPA, "torch", {}),
    with_package(AITER_QUANT_ATTN, "aiter", "FLASH_ATTN or TORCH_SDPA", kInstinct, head_set({128})),
};

constexpr Preference kOrder[] = {{FLASH_ATTN}, {TORCH_SDPA}};

constexpr Policy kPolicy{PlatformId::rocm, kRows, kOrder};

}  // namespace

const Policy& rocm_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform

namespace fovea {

std::vector<std::string_view> aiter_formats(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::rocm) return {};
  if (facts.get("gfx") == "gfx942") return {"fp8", "i8fp8"};
  if (facts.get("gfx") == "gfx950")
    return {"bf16", "fp8", "i8fp8", "mxfp8", "mxfp4", "mxfp6", "f6f4"};
  return {};
}

}  // namespace fovea
