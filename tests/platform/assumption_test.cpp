// What a verdict takes for granted is said, and only where facts leave something open.
#include <gtest/gtest.h>

#include <string>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;

struct Case {
  PlatformId platform;
  const char* facts;
  BackendName backend;
  const char* assumed;  // as a sentence
};

constexpr PlatformId kCuda = PlatformId::cuda;

TEST(Assumption, FactsThatAreMissingOrNotUnderstood) {
  const Case cases[] = {
      {kCuda, "sm=100,fa4=4.0", FLASH_ATTN_4,
       "cuda is not given (taken to be: >= 12.8), state cuda"},
      {kCuda, "sm=100,fa4=4.0,cuda=13.0", FLASH_ATTN_4, ""},
      {kCuda, "sm=100,fa4=unknown,cuda=13.0", FLASH_ATTN_4, ""},  // no minimum of the package
      {kCuda, "sm=90", FLASH_ATTN, ""},
      {kCuda, "sm=90", FLASH_ATTN_3, "cuda is not given (taken to be: >= 12.0), state cuda"},
      {kCuda, "sm=90,cuda=13.0,sageattention=unknown", SAGE_ATTN_2_8_8,
       "sageattention is 'unknown' (version not understood) (taken to be: >= 2.0), state the "
       "version "
       "of sageattention"},
      {kCuda, "sm=90,cuda=13.0,sageattention=1", SAGE_ATTN_2_8_8,
       "sageattention is '1' (version not understood) (taken to be: >= 2.0), state the version of "
       "sageattention"},
      {kCuda, "sm=90,cuda=13.0,sageattention=2.2.0.post1+cu13", SAGE_ATTN_2_8_8, ""},
      {kCuda, "sm=90,cuda=13.0,kernels=unknown", FLASH_ATTN_2,
       "kernels is unknown (taken to be: everything that the source tree builds), state kernels"},
      {kCuda, "sm=90,fovea_kernels=0", TORCH_SDPA,
       "torch is not among the facts (taken to be: installed), pip install torch"},
      {PlatformId::xpu, "", FLASH_ATTN,
       "vllm_xpu_kernels is not among the facts (taken to be: installed), pip install "
       "vllm-xpu-kernels; arch is not given (taken to be: arch other than 13136561920), state "
       "arch"},
      {PlatformId::xpu, "arch=21479031808", FLASH_ATTN,
       "vllm_xpu_kernels is not among the facts (taken to be: installed), pip install "
       "vllm-xpu-kernels"},
      {PlatformId::rocm, "gfx=gfx942,aiter=unknown", FLASH_ATTN, ""},
      {PlatformId::cpu, "", FLASH_ATTN, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.facts) + ' ' + name(c.backend));
    const PolicyVerdict verdict = platform_for(c.platform, c.facts)->judge(c.backend, {});
    EXPECT_TRUE(verdict.reasons.empty()) << sentence(verdict.reasons);
    EXPECT_EQ(sentence(verdict.assumed), c.assumed);
    for (const Reason& reason : verdict.assumed) EXPECT_EQ(reason.code, ReasonCode::assumed);
  }
}

TEST(Assumption, ARefusalAssumesNothing) {
  const std::pair<const char*, BackendName> cases[] = {
      {"sm=90,cuda=unknown", FLASH_ATTN_2},  // a toolkit that is not understood is refused
      {"sm=89", FLASH_ATTN_3},               // and so is another device
      {"sm=90,cuda=13.0,sageattention=1.0", SAGE_ATTN_2_8_8},
  };
  for (const auto& [facts, backend] : cases) {
    const PolicyVerdict verdict = platform_for(kCuda, facts)->judge(backend, {});
    EXPECT_FALSE(verdict.reasons.empty()) << facts;
    EXPECT_TRUE(verdict.assumed.empty()) << facts;
  }
}

// A name that follows another one inherits what that one assumes.
TEST(Assumption, ReachesNamesThatNeedAnother) {
  const PolicyVerdict verdict = platform_for(kCuda, "sm=100,fa4=4.0")->judge(VDNH3_ATTN, {});
  EXPECT_EQ(sentence(verdict.assumed),
            "vllm_omni is not among the facts (taken to be: installed), pip install vllm-omni");
}

}  // namespace
}  // namespace fovea
