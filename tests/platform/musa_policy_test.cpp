#include <gtest/gtest.h>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using Code = ReasonCode;

TEST(MusaPolicy, DefaultNeedsDeviceAndPackage) {
  const std::pair<const char*, const char*> cases[] = {
      {"cc=3.1,flash_attn=2.8", "FLASH_ATTN"},   {"cc=4.0,flash_attn=unknown", "FLASH_ATTN"},
      {"cc=3.0,flash_attn=2.8", "TORCH_SDPA"},   {"cc=3.1", "TORCH_SDPA"},
      {"cc=unknown,flash_attn=1", "TORCH_SDPA"}, {"flash_attn=2.8", "TORCH_SDPA"}};
  for (const auto& [facts, expected] : cases)
    EXPECT_EQ(chosen(*platform_for(PlatformId::musa, facts), {}), expected) << facts;
}

TEST(MusaPolicy, ExplicitChoicesRunOrAreRefused) {
  const Explicit cases[] = {
      {"cc=3.1,flash_attn=2.8", FLASH_ATTN},
      {"", TORCH_SDPA},
      // Never a silent TORCH_SDPA.
      {"cc=3.0,flash_attn=2.8", FLASH_ATTN, 128, Code::architecture, {"cc 3.0", "cc >= 3.1"}},
      {"cc=3.1", FLASH_ATTN, 128, Code::package, {"flash_attn is not installed"}},
      {"cc=unknown,flash_attn=1", FLASH_ATTN, 128, Code::architecture, {"not understood"}},
      {"flash_attn=1", FLASH_ATTN, 128, Code::architecture, {"cc not given"}},
      {"cc=3.1,flash_attn=1", FLASH_ATTN_3_HUB, 128, Code::platform, {"musa", "cuda"}},
  };
  for (const Explicit& c : cases) expect_explicit(PlatformId::musa, c);
}

}  // namespace
}  // namespace fovea
