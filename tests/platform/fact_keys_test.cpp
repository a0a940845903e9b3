#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fovea/device_facts.hpp"

namespace fovea {
namespace {

std::string message(PlatformId platform, std::string_view text) {
  const Result<DeviceFacts> result = parse_facts(platform, text);
  if (result) return "accepted: " + result->text();
  EXPECT_EQ(result.error().code, ErrorCode::invalid_facts);
  return result.error().message;
}

void expect_message(PlatformId platform, std::string_view text,
                    const std::vector<std::string>& pieces) {
  const std::string got = message(platform, text);
  for (const std::string& piece : pieces)
    EXPECT_NE(got.find(piece), std::string::npos) << "'" << piece << "' is not in: " << got;
}

std::string read(PlatformId platform, std::string_view text) {
  const Result<DeviceFacts> facts = parse_facts(platform, text);
  return facts ? facts->text() : facts.error().message;
}

TEST(FactKeys, ThePublishedKeysExist) {
  const std::pair<PlatformId, std::vector<std::string>> expected[] = {
      {PlatformId::cuda,
       {"sm", "name", "driver", "cuda", "cudnn", "flash_attn", "flash_attn_3", "fa4", "flashinfer",
        "flashinfer_prefill", "trtllm", "sageattention", "sageattn3", "spas_sage_attn",
        "sparse_sageattn", "block_sparse_attn", "tf_kernel", "kernels", "fovea_kernels"}},
      {PlatformId::rocm, {"gfx", "aiter"}},
      {PlatformId::npu, {"mindiesd", "laser"}},
      {PlatformId::xpu, {"arch"}},
      {PlatformId::musa, {"cc", "flash_attn"}},
      {PlatformId::cpu, {"isa"}}};
  for (const auto& [platform, names] : expected)
    for (const std::string& key : names) {
      const std::vector<FactKey>& keys = fact_keys(platform);
      const auto it =
          std::find_if(keys.begin(), keys.end(), [&](const FactKey& k) { return k.key == key; });
      ASSERT_NE(it, keys.end()) << name(platform) << ' ' << key;
      EXPECT_EQ(it->required, key == "sm") << key;
      EXPECT_FALSE(it->summary.empty()) << key;
    }
}

TEST(ParseFacts, ReadsAndSorts) {
  EXPECT_EQ(read(PlatformId::cuda, " sm = 90 , cudnn=9.19,name=NVIDIA H200"),
            "cuda: cudnn=9.19,name=NVIDIA H200,sm=90");
  EXPECT_EQ(read(PlatformId::cuda, "SM=90"), "cuda: sm=90");
  EXPECT_EQ(read(PlatformId::npu, ""), "npu:");
  EXPECT_EQ(read(PlatformId::rocm, "  "), "rocm:");
}

TEST(ParseFacts, NothingIsProbed) {
  const Result<DeviceFacts> facts = parse_facts(PlatformId::cpu, "");
  ASSERT_TRUE(facts);
  EXPECT_TRUE(facts->entries().empty());
}

TEST(ParseFacts, ComputeCapabilityInEveryUsualSpelling) {
  for (const char* text : {"sm=90", "sm=9.0", "sm=sm_90", "sm=sm90", "sm=sm_90a", "sm=90a"})
    EXPECT_EQ(read(PlatformId::cuda, text), "cuda: sm=90") << text;
  EXPECT_EQ(read(PlatformId::cuda, "sm=12.1"), "cuda: sm=121");
  EXPECT_EQ(read(PlatformId::cuda, "sm=unknown"), "cuda: sm=unknown");
  for (const char* text : {"sm=", "sm=9", "sm=hopper", "sm=9.0.1", "sm=-90", "sm=.9"})
    expect_message(PlatformId::cuda, text, {"'sm'", "accepted", "9.0"});
}

TEST(ParseFacts, CudnnVersionsAsTheLibraryReportsThem) {
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,cudnn=90500"), "cuda: cudnn=9.5.0,sm=90");
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,cudnn=91901"), "cuda: cudnn=9.19.1,sm=90");
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,cudnn=8904"), "cuda: cudnn=8.9.4,sm=90");
}

TEST(ParseFacts, OddVersionsArePresentButNotUnderstood) {
  const Result<DeviceFacts> facts =
      parse_facts(PlatformId::cuda,
                  "sm=90,flash_attn=2.8.0.post1+cu13,cudnn=unknown,flashinfer=,tf_kernel=main");
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->version("flash_attn"), (Version{2, 8, 0}));
  for (const char* key : {"cudnn", "flashinfer", "tf_kernel"}) {
    EXPECT_TRUE(facts->flag(key)) << key;
    EXPECT_FALSE(facts->version(key).has_value()) << key;
  }
}

TEST(ParseFacts, UnknownKeysListTheKeysAndSuggest) {
  expect_message(
      PlatformId::cuda, "sm=90,flashinfr=1",
      {"'flashinfr'", "keys are sm, name, driver, cuda, cudnn", "did you mean 'flashinfer'"});
  expect_message(PlatformId::musa, "sm=90", {"musa facts", "'sm'", "cc, flash_attn"});
  expect_message(PlatformId::cuda, "sm=90,", {"''", "keys are"});
}

TEST(ParseFacts, DuplicatesAreErrors) {
  expect_message(PlatformId::cuda, "sm=90,sm=80", {"'sm'", "twice"});
}

TEST(ParseFacts, AKeyNeedsAValue) {
  expect_message(PlatformId::cuda, "sm=90,flashinfer", {"'flashinfer'", "flashinfer=VALUE"});
}

TEST(ParseFacts, RequiredKeysAreNamed) {
  expect_message(PlatformId::cuda, "", {"'sm'", "missing"});
  expect_message(PlatformId::cuda, "cudnn=9.5", {"'sm'", "missing"});
}

TEST(ParseFacts, FlagsAreFlags) {
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,fovea_kernels=0"), "cuda: fovea_kernels=0,sm=90");
  expect_message(PlatformId::cuda, "sm=90,fovea_kernels=no", {"'fovea_kernels'", "0, 1"});
  expect_message(PlatformId::cuda, "sm=90,fovea_kernels=2", {"'fovea_kernels'", "0, 1"});
  expect_message(PlatformId::npu, "laser=", {"'laser'", "0, 1"});
}

TEST(ParseFacts, EmbeddedArchitectures) {
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,kernels=SM_80+sm_90a"),
            "cuda: kernels=sm_80+sm_90a,sm=90");
  EXPECT_EQ(read(PlatformId::cuda, "sm=90,kernels=none"), "cuda: kernels=none,sm=90");
  for (const char* text :
       {"sm=90,kernels=", "sm=90,kernels=80", "sm=90,kernels=sm_80+", "sm=90,kernels=hopper"})
    expect_message(PlatformId::cuda, text, {"'kernels'", "sm_80", "none"});
}

// Whatever is written, reading ends; and what was read prints as facts that read back the same.
TEST(ParseFacts, RandomTextIsReadOrRefused) {
  const std::vector<std::string> words = {"sm",
                                          "=",
                                          "90",
                                          ",",
                                          "unknown",
                                          "cudnn",
                                          "9.5",
                                          "kernels",
                                          "+",
                                          "sm_80",
                                          "sm_",
                                          "none",
                                          "isa",
                                          "avx2",
                                          "gfx",
                                          "-",
                                          "99999999999999999999",
                                          "",
                                          " ",
                                          "cc",
                                          "3.1",
                                          "aiter",
                                          ".",
                                          "\xff",
                                          "laser",
                                          "1"};
  const uint32_t seed = 20240229;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 2 == 0 ? "sm=90," : "";
    for (uint32_t n = random() % 8; n > 0; --n) text += words[random() % words.size()];
    const PlatformId platform =
        i % 2 == 0 ? PlatformId::cuda : static_cast<PlatformId>(random() % 6);
    const Result<DeviceFacts> facts = parse_facts(platform, text);
    if (!facts) {
      EXPECT_EQ(facts.error().code, ErrorCode::invalid_facts);
      continue;
    }
    ++accepted;
    const std::string printed = facts->text();
    const Result<DeviceFacts> again = parse_facts(platform, printed.substr(printed.find(':') + 1));
    ASSERT_TRUE(again) << text << ": " << again.error().message;
    EXPECT_EQ(*again, *facts) << text;
  }
  EXPECT_GT(accepted, 100);
}

TEST(ParseFacts, InstructionSetsAndGfx) {
  EXPECT_EQ(read(PlatformId::cpu, "isa=AVX2"), "cpu: isa=avx2");
  expect_message(PlatformId::cpu, "isa=sse",
                 {"'isa'", "generic, avx2, avx512, avx512bf16, amx, neon"});
  EXPECT_EQ(read(PlatformId::rocm, "gfx=942"), "rocm: gfx=gfx942");
  EXPECT_EQ(read(PlatformId::rocm, "gfx=GFX90a"), "rocm: gfx=gfx90a");
}

}  // namespace
}  // namespace fovea
