#include "src/platform/package.hpp"

#include <gtest/gtest.h>

namespace fovea::platform {
namespace {

TEST(Package, PresentMissingAndBroken) {
  DeviceFacts facts(PlatformId::cuda);
  EXPECT_EQ(state(package("flashinfer_prefill"), facts), PackageState::missing);
  EXPECT_EQ(state(package("torch"), facts), PackageState::present);
  facts.set("flashinfer", "0.6.18");
  EXPECT_EQ(state(package("flashinfer"), facts), PackageState::present);
  EXPECT_EQ(state(package("flashinfer_prefill"), facts), PackageState::broken);
  facts.set("flashinfer_prefill", "1");
  EXPECT_EQ(state(package("flashinfer_prefill"), facts), PackageState::present);
  facts.set("flashinfer", "0");
  EXPECT_EQ(state(package("flashinfer"), facts), PackageState::missing);
}

TEST(Package, DescribedWithTheVersionThatIsStated) {
  DeviceFacts facts(PlatformId::cuda);
  EXPECT_EQ(describe(package("flash_attn"), facts), "flash_attn");
  facts.set("flash_attn", "1");
  EXPECT_EQ(describe(package("flash_attn"), facts), "flash_attn");
  facts.set("flash_attn", "2.8.0.post1+cu13");
  EXPECT_EQ(describe(package("flash_attn"), facts), "flash_attn 2.8.0.post1+cu13");
  facts.set("flashinfer", "0.6.18");
  EXPECT_EQ(describe(package("trtllm"), facts), "flashinfer 0.6.18");
}

TEST(Package, WantedNamesTheSymbol) {
  EXPECT_EQ(wanted(package("flashinfer")), "flashinfer");
  EXPECT_EQ(wanted(package("trtllm")), "flashinfer with trtllm_ragged_attention_deepseek");
}

}  // namespace
}  // namespace fovea::platform
