#include "fovea/device_facts.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace fovea {
namespace {

TEST(Version, ReadsUpToThreeNumbersAndIgnoresTheRest) {
  const std::pair<const char*, Version> cases[] = {{"2.8.0.post1+cu13", {2, 8, 0}},
                                                   {"9.19", {9, 19, 0}},
                                                   {"0.6.18rc10", {0, 6, 18}},
                                                   {"4.0.0b36", {4, 0, 0}},
                                                   {"13", {13, 0, 0}},
                                                   {"2.", {2, 0, 0}},
                                                   {"2.x", {2, 0, 0}},
                                                   {"1.2.3.4", {1, 2, 3}},
                                                   {"3+local.7", {3, 0, 0}}};
  for (const auto& [text, version] : cases) {
    SCOPED_TRACE(text);
    ASSERT_TRUE(parse_version(text).has_value());
    EXPECT_EQ(*parse_version(text), version);
  }
}

TEST(Version, NothingWithoutALeadingNumber) {
  for (const char* text : {"", "unknown", "v2.8", ".5", "-1", "99999999999999999999"})
    EXPECT_FALSE(parse_version(text).has_value()) << text;
}

TEST(Version, ComparesByNumbers) {
  EXPECT_LT((Version{9, 4, 99}), (Version{9, 5, 0}));
  EXPECT_GT(*parse_version("9.19"), *parse_version("9.5"));
}

TEST(Platforms, NamesRoundTrip) {
  for (const PlatformId id : {PlatformId::cpu, PlatformId::cuda, PlatformId::rocm, PlatformId::npu,
                              PlatformId::xpu, PlatformId::musa})
    EXPECT_EQ(parse_platform(name(id)).value(), id);
  EXPECT_EQ(parse_platform(" CUDA ").value(), PlatformId::cuda);
}

TEST(Platforms, UnknownNameListsAndSuggests) {
  const Result<PlatformId> result = parse_platform("cudaa");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_facts);
  EXPECT_NE(result.error().message.find("cpu, cuda, rocm, npu, xpu, musa"), std::string::npos);
  EXPECT_NE(result.error().message.find("did you mean 'cuda'"), std::string::npos);
}

TEST(DeviceFacts, BrokenIsAbsentWithACause) {
  DeviceFacts facts(PlatformId::cuda);
  facts.set("a", "broken: 1.0 has no f");
  facts.set("b", "broken");
  facts.set("c", "brokenness 1.0");
  EXPECT_EQ(facts.fault("a"), "1.0 has no f");
  EXPECT_EQ(facts.fault("b"), "");
  EXPECT_EQ(facts.fault("c"), std::nullopt);
  EXPECT_EQ(facts.fault("d"), std::nullopt);
  EXPECT_FALSE(facts.flag("a", true));
  EXPECT_FALSE(facts.flag("b", true));
  EXPECT_TRUE(facts.flag("c"));
  EXPECT_EQ(facts.version("a"), std::nullopt);
}

// Bug: a change to a preset whose key was written in capitals was "given twice".
TEST(DeviceFacts, ChangesReplaceWhatHasTheirKey) {
  EXPECT_EQ(overlay_facts("sm=90,cudnn=9.19", "cudnn=9.14"), "cudnn=9.14,sm=90");
  EXPECT_EQ(overlay_facts("sm=90,cudnn=9.19", "CUDNN = 9.14"), "CUDNN = 9.14,sm=90");
  EXPECT_EQ(overlay_facts("sm=90", ""), "sm=90");
  EXPECT_EQ(overlay_facts("", "sm=90"), "sm=90");
}

TEST(DeviceFacts, SortedReplacedAndPrinted) {
  DeviceFacts facts(PlatformId::cuda);
  facts.set("sm", "80");
  facts.set("cudnn", "9.5");
  facts.set("sm", "90");
  EXPECT_EQ(facts.text(), "cuda: cudnn=9.5,sm=90");
  EXPECT_EQ(facts.get("sm"), "90");
  EXPECT_EQ(facts.get("s"), std::nullopt);
  EXPECT_EQ(DeviceFacts(PlatformId::npu).text(), "npu:");
}

TEST(DeviceFacts, AbsentUnknownAndStatedAreDifferent) {
  DeviceFacts facts(PlatformId::cuda);
  facts.set("flashinfer", "unknown");
  facts.set("sageattention", "1");
  facts.set("fa4", "0");
  facts.set("cudnn", "");
  facts.set("flash_attn", "2.8.0.post1+cu13");
  EXPECT_TRUE(facts.has("flashinfer"));
  EXPECT_TRUE(facts.flag("flashinfer"));
  EXPECT_FALSE(facts.version("flashinfer").has_value());
  EXPECT_TRUE(facts.flag("sageattention"));
  EXPECT_FALSE(facts.version("sageattention").has_value());
  EXPECT_FALSE(facts.flag("fa4"));
  EXPECT_TRUE(facts.flag("cudnn"));
  EXPECT_FALSE(facts.version("cudnn").has_value());
  EXPECT_EQ(facts.version("flash_attn"), (Version{2, 8, 0}));
  EXPECT_FALSE(facts.flag("driver"));
  EXPECT_TRUE(facts.flag("fovea_kernels", true));
}

TEST(DeviceFacts, IntegersAreWhole) {
  DeviceFacts facts(PlatformId::cuda);
  facts.set("sm", "90");
  facts.set("driver", "580.65");
  EXPECT_EQ(facts.integer("sm"), 90);
  EXPECT_FALSE(facts.integer("driver").has_value());
  EXPECT_FALSE(facts.integer("cuda").has_value());
}

}  // namespace
}  // namespace fovea
