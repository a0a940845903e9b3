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

TEST(Package, AStatedFaultIsBrokenWithItsCause) {
  DeviceFacts facts(PlatformId::cuda);
  facts.set("flashinfer", "broken: OSError: no libcudart.so.12");
  for (const char* id : {"flashinfer", "flashinfer_prefill", "trtllm"}) {
    EXPECT_EQ(state(package(id), facts), PackageState::broken) << id;
    EXPECT_EQ(fault(package(id), facts), "installed but broken (OSError: no libcudart.so.12)");
  }
  EXPECT_EQ(describe(package("flashinfer"), facts), "flashinfer");
  facts.set("flashinfer", "0.6.18");
  EXPECT_EQ(fault(package("trtllm"), facts), "0.6.18 without trtllm_ragged_attention_deepseek");
  facts.set("sageattention", "broken");
  EXPECT_EQ(state(package("sageattention"), facts), PackageState::broken);
  EXPECT_EQ(fault(package("sageattention"), facts), "installed but broken");
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
