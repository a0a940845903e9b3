#include <gtest/gtest.h>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using Code = ReasonCode;

TEST(NpuPolicy, DefaultNeedsMindie) {
  EXPECT_EQ(chosen(*platform_for(PlatformId::npu, "mindiesd=3.1.0"), {128, true, {}}),
            "FLASH_ATTN");
  EXPECT_EQ(chosen(*platform_for(PlatformId::npu, "mindiesd=unknown,laser=1"), {}), "FLASH_ATTN");
  EXPECT_EQ(chosen(*platform_for(PlatformId::npu, "laser=1"), {}), "TORCH_SDPA");
  EXPECT_EQ(chosen(*platform_for(PlatformId::npu, ""), {}), "TORCH_SDPA");
}

TEST(NpuPolicy, ExplicitChoicesRunOrAreRefused) {
  const Explicit cases[] = {
      {"mindiesd=3.1.0", FLASH_ATTN},
      {"mindiesd=3.1.0", RAINFUSION_ATTN, 96},
      {"mindiesd=3.1.0", RAINFUSION_ATTN, 0},
      {"", TORCH_SDPA},
      {"", FLASH_ATTN, 128, Code::package, {"mindiesd is not installed", "pip install mindiesd"}},
      {"", RAINFUSION_ATTN, 128, Code::package, {"mindiesd"}},
      {"mindiesd=1", RAINFUSION_ATTN, 72, Code::head_dim, {"72", "64, 96, 128, 192, 256"}},
      // Never a silent FLASH_ATTN.
      {"mindiesd=1", FLASH_ATTN_HUB, 128, Code::platform, {"npu", "cuda", "use FLASH_ATTN"}},
      {"mindiesd=1", FLASH_ATTN_3_HUB, 128, Code::platform, {"npu"}},
      {"mindiesd=1", TRTLLM_ATTN, 128, Code::platform, {"npu", "cuda"}},
  };
  for (const Explicit& c : cases) expect_explicit(PlatformId::npu, c);
}

TEST(NpuPolicy, TheProviderIsNamedWithItsVersion) {
  const PolicyVerdict verdict =
      platform_for(PlatformId::npu, "mindiesd=3.1.0")->judge(FLASH_ATTN, {});
  EXPECT_EQ(verdict.provider, "package mindiesd 3.1.0");
  EXPECT_EQ(verdict.path, "package:mindiesd");
}

}  // namespace
}  // namespace fovea
