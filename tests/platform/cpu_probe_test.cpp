#include "src/platform/cpu_probe.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "fovea/device_facts.hpp"

namespace fovea::platform {
namespace {

using simd::Isa;

TEST(ChooseIsa, TheBestOneWithoutAWish) {
  EXPECT_EQ(choose_isa(Isa::avx2, std::nullopt).value(), Isa::avx2);
  EXPECT_EQ(choose_isa(Isa::neon, std::nullopt).value(), Isa::neon);
}

TEST(ChooseIsa, AWishCaps) {
  EXPECT_EQ(choose_isa(Isa::avx512bf16, "avx2").value(), Isa::avx2);
  EXPECT_EQ(choose_isa(Isa::avx512bf16, "generic").value(), Isa::generic);
  EXPECT_EQ(choose_isa(Isa::amx, "avx512").value(), Isa::avx512);
  EXPECT_EQ(choose_isa(Isa::amx, "amx").value(), Isa::amx);
  EXPECT_EQ(choose_isa(Isa::avx512, "AVX512").value(), Isa::avx512);
  EXPECT_EQ(choose_isa(Isa::neon, "generic").value(), Isa::generic);
}

TEST(ChooseIsa, AnUnknownNameListsTheAcceptedOnes) {
  const Result<Isa> result = choose_isa(Isa::avx2, "avx-2");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find("generic, avx2, avx512, avx512bf16, amx, neon"),
            std::string::npos);
  EXPECT_NE(result.error().message.find("did you mean 'avx2'"), std::string::npos);
}

TEST(ChooseIsa, MoreThanTheMachineHasIsRefused) {
  const std::pair<Isa, const char*> cases[] = {
      {Isa::avx2, "avx512"}, {Isa::avx512, "avx512bf16"}, {Isa::avx512bf16, "amx"},
      {Isa::avx2, "neon"},   {Isa::neon, "avx2"},         {Isa::generic, "avx2"}};
  for (const auto& [available, wanted] : cases) {
    SCOPED_TRACE(wanted);
    const Result<Isa> result = choose_isa(available, wanted);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    ASSERT_EQ(result.error().reasons.size(), 1u);
    const Reason& reason = result.error().reasons.front();
    EXPECT_EQ(reason.code, ReasonCode::isa);
    EXPECT_EQ(reason.got, wanted);
    EXPECT_NE(reason.accepted.find(simd::name(available)), std::string::npos);
    EXPECT_FALSE(reason.remedy.empty());
  }
}

TEST(ChooseIsa, ARefusalOfAmxSaysWhy) {
  const std::string message = choose_isa(Isa::avx512, "amx").error().message;
  EXPECT_NE(message.find(simd::amx_refusal()), std::string::npos) << message;
}

class ProbeCpu : public testing::Test {
 protected:
  void SetUp() override { unsetenv("FOVEA_ISA"); }
  void TearDown() override { unsetenv("FOVEA_ISA"); }
};

TEST_F(ProbeCpu, TellsTheBestSet) {
  const Result<DeviceFacts> facts = probe_cpu();
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->text(), "cpu: isa=" + std::string(simd::name(simd::preferred_isa())));
}

TEST_F(ProbeCpu, IsCappedByTheEnvironment) {
  setenv("FOVEA_ISA", " Generic ", 1);
  EXPECT_EQ(probe_cpu()->text(), "cpu: isa=generic");
  setenv("FOVEA_ISA", "   ", 1);
  EXPECT_EQ(probe_cpu()->get("isa"), simd::name(simd::preferred_isa()));
  setenv("FOVEA_ISA", "sse9", 1);
  ASSERT_FALSE(probe_cpu());
  EXPECT_EQ(probe_cpu().error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fovea::platform
