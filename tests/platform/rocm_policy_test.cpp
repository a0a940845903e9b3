#include <gtest/gtest.h>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using Code = ReasonCode;

TEST(RocmPolicy, DefaultNeedsAiterOnInstinct) {
  const std::pair<const char*, const char*> cases[] = {{"gfx=gfx942,aiter=0.1.7", "FLASH_ATTN"},
                                                       {"gfx=950,aiter=unknown", "FLASH_ATTN"},
                                                       {"gfx=gfx942", "TORCH_SDPA"},
                                                       {"gfx=gfx90a,aiter=0.1.7", "TORCH_SDPA"},
                                                       {"gfx=gfx1100,aiter=1", "TORCH_SDPA"},
                                                       {"aiter=1", "TORCH_SDPA"},
                                                       {"", "TORCH_SDPA"}};
  for (const auto& [facts, expected] : cases)
    EXPECT_EQ(chosen(*platform_for(PlatformId::rocm, facts), {128, true, {}}), expected) << facts;
}

TEST(RocmPolicy, ExplicitChoicesRunOrAreRefused) {
  const Explicit cases[] = {
      {"gfx=gfx942,aiter=1", FLASH_ATTN},
      {"gfx=gfx942,aiter=1", AITER_QUANT_ATTN},
      {"gfx=gfx950,aiter=1", AITER_QUANT_ATTN, 0},
      {"", TORCH_SDPA},
      // Never a silent TORCH_SDPA.
      {"gfx=gfx942", FLASH_ATTN, 128, Code::package, {"aiter is not installed", "amd-aiter"}},
      {"gfx=gfx90a,aiter=1", FLASH_ATTN, 128, Code::architecture, {"gfx90a", "gfx942, gfx950"}},
      {"aiter=1", FLASH_ATTN, 128, Code::architecture, {"no stated gfx"}},
      {"gfx=gfx90a,aiter=1", AITER_QUANT_ATTN, 128, Code::architecture, {"gfx90a"}},
      {"gfx=gfx942,aiter=1", AITER_QUANT_ATTN, 64, Code::head_dim, {"64", "128"}},
      {"gfx=gfx942,aiter=1", FLASH_ATTN_HUB, 128, Code::platform, {"rocm", "cuda"}},
      {"gfx=gfx942,aiter=1", SAGE_ATTN, 128, Code::platform, {"rocm", "cuda, xpu"}},
      {"gfx=gfx942,aiter=1", REFERENCE, 128, Code::platform, {"rocm", "cpu"}},
  };
  for (const Explicit& c : cases) expect_explicit(PlatformId::rocm, c);
}

TEST(RocmPolicy, FormatsOfTheQuantisedPathByDevice) {
  using List = std::vector<std::string_view>;
  EXPECT_EQ(aiter_formats(*parse_facts(PlatformId::rocm, "gfx=942")), (List{"fp8", "i8fp8"}));
  EXPECT_EQ(aiter_formats(*parse_facts(PlatformId::rocm, "gfx=gfx950")),
            (List{"bf16", "fp8", "i8fp8", "mxfp8", "mxfp4", "mxfp6", "f6f4"}));
  EXPECT_EQ(aiter_formats(*parse_facts(PlatformId::rocm, "gfx=gfx90a")), List{});
  EXPECT_EQ(aiter_formats(*parse_facts(PlatformId::cuda, "sm=90")), List{});
}

}  // namespace
}  // namespace fovea
