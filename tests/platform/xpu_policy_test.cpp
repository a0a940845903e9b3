#include <gtest/gtest.h>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using Code = ReasonCode;

TEST(XpuPolicy, DefaultIsFlashExceptOnMax) {
  EXPECT_EQ(chosen(*platform_for(PlatformId::xpu, "arch=13136561920"), {}), "TORCH_SDPA");
  EXPECT_EQ(chosen(*platform_for(PlatformId::xpu, "arch=21483233280"), {}), "FLASH_ATTN");
  EXPECT_EQ(chosen(*platform_for(PlatformId::xpu, ""), {}), "FLASH_ATTN");
}

TEST(XpuPolicy, ExplicitChoicesRunOrAreRefused) {
  const Explicit cases[] = {
      {"arch=1", FLASH_ATTN},
      {"arch=13136561920", TORCH_SDPA},
      {"arch=1,auto_round=0.16", SAGE_ATTN},
      {"arch=13136561920", FLASH_ATTN, 128, Code::architecture, {"13136561920", "TORCH_SDPA"}},
      {"arch=1", SAGE_ATTN, 128, Code::package, {"auto_round"}},
      {"arch=1", FLASH_ATTN_HUB, 128, Code::platform, {"xpu", "cuda"}},
      {"arch=1", CUDNN_ATTN, 128, Code::platform, {"xpu", "cuda"}},
  };
  for (const Explicit& c : cases) expect_explicit(PlatformId::xpu, c);
}

}  // namespace
}  // namespace fovea
