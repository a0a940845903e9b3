#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using Code = ReasonCode;

constexpr PlatformId kCuda = PlatformId::cuda;

struct Default {
  const char* facts;
  int64_t head_dim;
  bool mask_free;
  const char* expected;
};

// With this project's kernels, which is what a user of this build has.
const Default kOwnDefaults[] = {
    {"sm=75", 128, false, "TORCH_SDPA"},
    {"sm=80", 128, false, "FLASH_ATTN"},
    {"sm=86", 64, false, "FLASH_ATTN"},
    {"sm=89", 72, false, "FLASH_ATTN"},
    {"sm=90", 128, true, "FLASH_ATTN"},
    {"sm=90,cudnn=9.19,flashinfer=0.6.18,flashinfer_prefill=1,trtllm=1", 128, true, "FLASH_ATTN"},
    {"sm=90", 320, false, "FLASH_ATTN"},
    {"sm=100", 128, true, "TORCH_SDPA"},
    {"sm=100,fa4=4.0", 128, true, "FLASH_ATTN"},
    {"sm=100,cudnn=9.19", 128, true, "CUDNN_ATTN"},
    {"sm=100,cudnn=9.19,trtllm=1", 128, true, "TRTLLM_ATTN"},
    {"sm=100,cudnn=9.19,trtllm=1", 128, false, "CUDNN_ATTN"},
    {"sm=70", 128, false, "TORCH_SDPA"},
};

// The published order of choices, without this project's kernels.
const Default kUpstreamDefaults[] = {
    {"sm=90,flash_attn=2.8.0", 128, false, "FLASH_ATTN"},
    {"sm=90,flash_attn=2.8.0", 12, false, "FLASH_ATTN"},
    {"sm=90,flash_attn=2.8.0", 0, false, "FLASH_ATTN"},
    {"sm=90,flash_attn_3=3.0", 320, false, "FLASH_ATTN"},
    {"sm=90", 128, false, "TORCH_SDPA"},
    {"sm=90,fa4=4.0", 128, false, "TORCH_SDPA"},
    {"sm=90,cudnn=9.19,flashinfer_prefill=1", 128, true, "TORCH_SDPA"},
    {"sm=75", 128, false, "TORCH_SDPA"},
    {"sm=75,flash_attn=2.8", 128, false, "TORCH_SDPA"},
    {"sm=80,flash_attn=2.8,name=Tesla A100", 128, false, "TORCH_SDPA"},
    {"sm=80,flash_attn=2.8,name=NVIDIA A100", 128, false, "FLASH_ATTN"},
    {"sm=unknown,flash_attn=2.8", 128, false, "TORCH_SDPA"},
    {"sm=100,trtllm=1", 128, true, "TRTLLM_ATTN"},
    {"sm=103,trtllm=1,cudnn=9.5", 128, true, "TRTLLM_ATTN"},
    {"sm=100,trtllm=1,cudnn=9.5", 128, false, "CUDNN_ATTN"},
    {"sm=100,trtllm=1,cudnn=9.5", 64, true, "CUDNN_ATTN"},
    {"sm=100,trtllm=1,cudnn=9.5", 0, true, "CUDNN_ATTN"},
    {"sm=120,trtllm=1,cudnn=9.5", 128, true, "CUDNN_ATTN"},
    {"sm=120,cudnn=9.5", 128, false, "CUDNN_ATTN"},
    {"sm=121,cudnn=90500", 256, false, "CUDNN_ATTN"},
    {"sm=110,cudnn=9.5", 128, false, "CUDNN_ATTN"},
    {"sm=120,cudnn=9.5", 72, false, "CUDNN_ATTN"},
    {"sm=120,cudnn=9.4.99,flashinfer_prefill=1", 128, false, "FLASHINFER_ATTN"},
    {"sm=120,cudnn=9.4.99,flashinfer_prefill=1", 64, false, "FLASHINFER_ATTN"},
    {"sm=120,cudnn=9.4.99,flashinfer_prefill=1", 72, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.4.99,flashinfer_prefill=1", 0, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.4.99", 128, false, "TORCH_SDPA"},
    {"sm=120,cudnn=unknown,flashinfer_prefill=1", 128, false, "FLASHINFER_ATTN"},
    {"sm=120,cudnn=,flashinfer_prefill=1", 128, false, "FLASHINFER_ATTN"},
    // Installed but without the prefill wrapper: not chosen.
    {"sm=120,flashinfer=0.6.18", 128, false, "TORCH_SDPA"},
    {"sm=120,flashinfer=0.6.18,flashinfer_prefill=0", 128, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.5", 320, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.5", 12, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.5,flashinfer=0.6.18", 12, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.5,flashinfer_prefill=1", 320, false, "TORCH_SDPA"},
    {"sm=120,cudnn=9.5,fa4=4.0.0b33", 320, false, "FLASH_ATTN"},
    {"sm=120,cudnn=9.5,fa4=4.0.0b33", 12, false, "FLASH_ATTN"},
    {"sm=120,flash_attn=2.8", 128, false, "TORCH_SDPA"},
};

TEST(CudaPolicy, DefaultsWithOwnKernels) {
  for (const Default& c : kOwnDefaults)
    EXPECT_EQ(chosen(*platform_for(kCuda, c.facts), {c.head_dim, c.mask_free, {}}), c.expected)
        << c.facts << " head " << c.head_dim;
}

TEST(CudaPolicy, DefaultsWithoutOwnKernels) {
  for (const Default& c : kUpstreamDefaults) {
    const std::string facts = std::string(c.facts) + ",fovea_kernels=0";
    EXPECT_EQ(chosen(*platform_for(kCuda, facts), {c.head_dim, c.mask_free, {}}), c.expected)
        << facts << " head " << c.head_dim;
  }
}

TEST(CudaPolicy, OrderOfPreference) {
  const std::vector<std::string> blackwell = {"TRTLLM_ATTN", "CUDNN_ATTN", "FLASHINFER_ATTN",
                                              "FLASH_ATTN", "TORCH_SDPA"};
  const std::vector<std::string> older = {"FLASH_ATTN", "TORCH_SDPA"};
  for (const char* facts : {"sm=100", "sm=103", "sm=110", "sm=120", "sm=121"})
    EXPECT_EQ(order(*platform_for(kCuda, facts), {}), blackwell) << facts;
  for (const char* facts : {"sm=75", "sm=80", "sm=86", "sm=89", "sm=90", "sm=unknown"})
    EXPECT_EQ(order(*platform_for(kCuda, facts), {}), older) << facts;
}

TEST(CudaPolicy, PassedOverEntriesSayWhy) {
  const auto platform = platform_for(kCuda, "sm=120,cudnn=9.4.99,flashinfer=0.6.18");
  const std::vector<PolicyVerdict> list = platform->preference({128, false, {}});
  ASSERT_EQ(list.size(), 5u);
  EXPECT_TRUE(find(list[0].reasons, Code::architecture));
  EXPECT_TRUE(find(list[0].reasons, Code::mask_free));
  const std::optional<Reason> cudnn = find(list[1].reasons, Code::version);
  ASSERT_TRUE(cudnn);
  EXPECT_EQ(cudnn->field, "cudnn");
  EXPECT_EQ(cudnn->got, "9.4.99");
  EXPECT_EQ(cudnn->accepted, ">= 9.5");
  EXPECT_TRUE(find(list[2].reasons, Code::package));
  EXPECT_TRUE(find(list[3].reasons, Code::package));
  EXPECT_TRUE(list[4].reasons.empty());
  for (const PolicyVerdict& verdict : list)
    if (!verdict.reasons.empty()) expect_complete(verdict);
}

TEST(CudaPolicy, AVersionThatIsNotUnderstoodIsSaidSo) {
  const auto list = platform_for(kCuda, "sm=120,cudnn=unknown")->preference({128, false, {}});
  const std::optional<Reason> reason = find(list[1].reasons, Code::version);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->got.find("not understood"), std::string::npos);
}

TEST(CudaPolicy, OneReasonPerMissingLibrary) {
  const auto list = platform_for(kCuda, "sm=120")->preference({128, false, {}});
  ASSERT_EQ(list[1].backend, CUDNN_ATTN);
  EXPECT_EQ(list[1].reasons.size(), 1u) << sentence(list[1].reasons);
}

// Names that this project provides, by device.
struct Provided {
  const char* facts;
  BackendName backend;
  const char* provider;
  const char* path;
};

TEST(CudaPolicy, ProvidersAndPaths) {
  const Provided cases[] = {
      {"sm=80", FLASH_ATTN, "fovea", "builtin:flash"},
      {"sm=90", FLASH_ATTN, "fovea", "builtin:flash"},
      {"sm=80", FLASH_ATTN_2, "fovea", "builtin:flash_sm80"},
      {"sm=90", FLASH_ATTN_2, "fovea", "builtin:flash_sm80"},
      {"sm=100", FLASH_ATTN_2, "fovea", "builtin:flash_sm80"},
      {"sm=121", FLASH_ATTN_2, "fovea", "builtin:flash_sm80"},
      {"sm=90", FLASH_ATTN_3, "fovea", "builtin:flash_sm90"},
      {"sm=75", TORCH_SDPA, "fovea", "builtin:cuda_sdpa"},
      {"sm=120", TORCH_SDPA, "fovea", "builtin:cuda_sdpa"},
      {"sm=70", TORCH_SDPA, "package torch", "package:torch"},
      {"sm=90,cudnn=9.19", CUDNN_ATTN, "cudnn", "builtin:cudnn"},
      // A package does not displace a kernel of ours.
      {"sm=90,flash_attn=2.8.0,flash_attn_3=3.0", FLASH_ATTN, "fovea", "builtin:flash"},
      {"sm=120,fa4=4.0.0b33", FLASH_ATTN, "package fa4 4.0.0b33", "package:fa4"},
      // Where a build or its toolkit lacks ours, an installed package stands in.
      {"sm=89,kernels=none,flash_attn=2.8", FLASH_ATTN, "package flash_attn 2.8",
       "package:flash_attn"},
      {"sm=90,cuda=11.8,tf_kernel=1", RADIAL_ATTN, "package tf_kernel", "package:tf_kernel"},
      {"sm=90,flash_attn=2.8.0,fovea_kernels=0", FLASH_ATTN, "package flash_attn 2.8.0",
       "package:flash_attn"},
      {"sm=90,flash_attn=2.8.0,flash_attn_3=3.0,fovea_kernels=0", FLASH_ATTN,
       "package flash_attn_3 3.0", "package:flash_attn_3"},
      {"sm=90,flash_attn=unknown,fovea_kernels=0", FLASH_ATTN_2, "package flash_attn",
       "package:flash_attn"},
      {"sm=90,fovea_kernels=0", TORCH_SDPA, "package torch", "package:torch"},
      {"sm=100,flashinfer=0.6.18,trtllm=1", TRTLLM_ATTN, "package flashinfer 0.6.18",
       "package:flashinfer"},
      {"sm=89,tf_kernel=1,sageattention=2.2", SAGE_ATTN_2_8_8, "package tf_kernel",
       "package:tf_kernel"},
      {"sm=89,sageattention=2.2", SAGE_ATTN_2_8_8, "package sageattention 2.2",
       "package:sageattention"},
      {"sm=89,sparse_sageattn=1", SPARGE_ATTN, "package sparse_sageattn",
       "package:sparse_sageattn"},
      {"sm=90", VDNH3_ATTN, "package vllm_omni", "package:vllm_omni"},
  };
  for (const Provided& c : cases) {
    SCOPED_TRACE(std::string(c.facts) + ' ' + name(c.backend));
    const PolicyVerdict verdict = platform_for(kCuda, c.facts)->judge(c.backend, {128, false, {}});
    EXPECT_TRUE(verdict.reasons.empty()) << sentence(verdict.reasons);
    EXPECT_EQ(verdict.provider, c.provider);
    EXPECT_EQ(verdict.path, c.path);
  }
}

TEST(CudaPolicy, ExplicitChoices) {
  const Explicit cases[] = {
      // SAGE_ATTN
      {"sm=80,sageattention=2.2", SAGE_ATTN},
      {"sm=86,sageattention=2.2", SAGE_ATTN},
      {"sm=89,sageattention=2.2", SAGE_ATTN},
      {"sm=90,sageattention=1.0.6", SAGE_ATTN},
      {"sm=120,sageattention=2.2", SAGE_ATTN},
      {"sm=121,sageattention=unknown", SAGE_ATTN},
      {"sm=100,sageattention=2.2", SAGE_ATTN, 128, Code::architecture, {"sm_100", "sm_90, sm_120"}},
      {"sm=103,sageattention=2.2", SAGE_ATTN, 128, Code::architecture, {"sm_103"}},
      {"sm=75,sageattention=2.2", SAGE_ATTN, 128, Code::architecture, {"sm_75", "use "}},
      {"sm=90", SAGE_ATTN, 128, Code::package, {"sageattention is not installed", "pip install"}},
      // The named variants of the guide
      {"sm=80,cuda=11.8,sageattention=2.2", SAGE_ATTN_2_8_8},
      {"sm=120,cuda=12.8,sageattention=2.2", SAGE_ATTN_2_8_16},
      {"sm=89,tf_kernel=unknown", SAGE_ATTN_2_8_16},
      {"sm=75,cuda=12.0,sageattention=2.2", SAGE_ATTN_2_8_8, 128, Code::architecture, {"sm_80 or"}},
      {"sm=80,cuda=11.7,sageattention=2.2",
       SAGE_ATTN_2_8_8,
       128,
       Code::version,
       {"cuda 11.7", ">= 11.8"}},
      {"sm=80,sageattention=1.0.6", SAGE_ATTN_2_8_8, 128, Code::version, {"1.0.6", ">= 2.0"}},
      {"sm=80", SAGE_ATTN_2_8_16, 128, Code::package, {"tf_kernel or sageattention"}},
      {"sm=90,sageattention=2.2", SAGE_ATTN_2_8_8_SM90},
      {"sm=89,sageattention=2.2",
       SAGE_ATTN_2_8_8_SM90,
       128,
       Code::architecture,
       {"sm_89", "sm_90", "SAGE_ATTN_2_8_8"}},
      // SAGE_ATTN_3
      {"sm=120,sageattn3=1.0", SAGE_ATTN_3, 64},
      {"sm=100,sageattn3=1.0", SAGE_ATTN_3, 256},
      {"sm=100,sageattn3=1.0", SAGE_ATTN_3, 0},
      {"sm=90,sageattn3=1.0", SAGE_ATTN_3, 128, Code::architecture, {"sm_90", "sm_100 or newer"}},
      {"sm=120", SAGE_ATTN_3, 128, Code::package, {"sageattn3"}},
      {"sm=120,sageattn3=1.0",
       SAGE_ATTN_3,
       96,
       Code::head_dim,
       {"head_dim 96", "64, 128, 256", "TORCH_SDPA"}},
      // Hub
      {"sm=80,hub_kernels=0.17.2", FLASH_ATTN_HUB},
      {"sm=90,hub_kernels=0.16.1", FLASH_ATTN_3_HUB},
      {"sm=90,hub_kernels=unknown", FLASH_ATTN_3_HUB},
      {"sm=90", FLASH_ATTN_HUB, 128, Code::package, {"hub_kernels", "kernels>=0.16.1"}},
      {"sm=120,hub_kernels=0.17.2", FLASH_ATTN_HUB, 128, Code::architecture, {"sm_120"}},
      {"sm=89,hub_kernels=0.17.2", FLASH_ATTN_3_HUB, 128, Code::architecture, {"sm_89", "sm_90"}},
      {"sm=90,hub_kernels=0.16.0", FLASH_ATTN_HUB, 128, Code::version, {"0.16.0", ">= 0.16.1"}},
      // FLASH_ATTN: three reasons
      {"sm=120", FLASH_ATTN, 128, Code::package, {"fa4", "FlashAttention 4"}},
      {"sm=120,flash_attn=2.8.0.post1+cu13",
       FLASH_ATTN,
       128,
       Code::package,
       {"2.8.0.post1+cu13 without cute"}},
      {"sm=75", FLASH_ATTN, 128, Code::architecture, {"sm_75", "sm_80", "TORCH_SDPA"}},
      {"sm=90,fovea_kernels=0", FLASH_ATTN, 128, Code::package, {"flash_attn_3 or flash_attn"}},
      {"sm=90,fovea_kernels=0,flash_attn=2.8", FLASH_ATTN, 12},
      {"sm=90", FLASH_ATTN, 320},
      // Pinned families
      {"sm=80,cuda=11.6", FLASH_ATTN_2},
      {"sm=75,cuda=12.0", FLASH_ATTN_2, 128, Code::architecture, {"sm_75", "sm_80 or newer"}},
      {"sm=80,cuda=11.5", FLASH_ATTN_2, 128, Code::version, {"cuda 11.5", ">= 11.6"}},
      {"sm=80,cuda=unknown", FLASH_ATTN_2, 128, Code::version, {"not understood", ">= 11.6"}},
      {"sm=80,fovea_kernels=0", FLASH_ATTN_2, 128, Code::package, {"flash_attn"}},
      {"sm=90,cuda=12.0", FLASH_ATTN_3},
      {"sm=90,cuda=11.8", FLASH_ATTN_3, 128, Code::version, {">= 12.0"}},
      {"sm=89", FLASH_ATTN_3, 128, Code::architecture, {"sm_89", "sm_90"}},
      {"sm=100", FLASH_ATTN_3, 128, Code::architecture, {"sm_100", "sm_90"}},
      {"sm=90,fovea_kernels=0", FLASH_ATTN_3, 128, Code::package, {"build hopper/"}},
      {"sm=90,fa4=4.0,cuda=12.8", FLASH_ATTN_4},
      {"sm=100,fa4=4.0.0b36", FLASH_ATTN_4},
      {"sm=120,fa4=1,cuda=13.0", FLASH_ATTN_4},
      {"sm=90,fa4=4.0,cuda=12.6", FLASH_ATTN_4, 128, Code::version, {"12.6", ">= 12.8"}},
      {"sm=89,fa4=4.0,cuda=12.8", FLASH_ATTN_4, 128, Code::architecture, {"sm_89", "FLASH_ATTN_2"}},
      {"sm=80,fa4=4.0", FLASH_ATTN_4, 128, Code::architecture, {"FLASH_ATTN_2"}},
      {"sm=90", FLASH_ATTN_4, 128, Code::package, {"fa4", "flash-attn-4"}},
      // Ranges of the guide, 9.0, 10.x and 12.x, and not a list of the devices that exist.
      {"sm=10.0,fa4=4.0,cuda=12.8", FLASH_ATTN_4},
      {"sm=10.9,fa4=4.0,cuda=12.8", FLASH_ATTN_4},
      {"sm=12.0,fa4=4.0,cuda=12.8", FLASH_ATTN_4},
      {"sm=12.5,fa4=4.0,cuda=12.8", FLASH_ATTN_4},
      {"sm=11.0,fa4=4.0,cuda=12.8",
       FLASH_ATTN_4,
       128,
       Code::architecture,
       {"sm_110", "sm_90, sm_10x, sm_12x", "FLASH_ATTN_2"}},
      {"sm=130,fa4=4.0,cuda=12.8", FLASH_ATTN_4, 128, Code::architecture, {"sm_130", "sm_12x"}},
      {"sm=91,fa4=4.0,cuda=12.8",
       FLASH_ATTN_4,
       128,
       Code::architecture,
       {"sm_91", "sm_90, sm_10x"}},
      // Installed and of no use, with the cause.
      {"sm=90,fa4=broken: no module cutlass,cuda=12.8",
       FLASH_ATTN_4,
       128,
       Code::package,
       {"fa4", "installed but broken (no module cutlass)", "flash-attn-4"}},
      {"sm=90,sageattention=broken: undefined symbol",
       SAGE_ATTN,
       128,
       Code::package,
       {"sageattention", "installed but broken (undefined symbol)"}},
      {"sm=90,flashinfer=broken: no libcudart",
       FLASHINFER_ATTN,
       128,
       Code::package,
       {"installed but broken (no libcudart)"}},
      {"sm=90,flashinfer=0.6.18,flashinfer_prefill=broken: a cause",
       FLASHINFER_ATTN,
       128,
       Code::package,
       {"installed but broken (a cause)"}},
      {"sm=90,cudnn=broken: no such file",
       CUDNN_ATTN,
       128,
       Code::package,
       {"installed but broken (no such file)"}},
      {"sm=120,flash_attn=broken: a cause", FLASH_ATTN, 128, Code::package, {"a cause"}},
      {"sm=90,fovea_kernels=0,flash_attn=broken: a cause",
       FLASH_ATTN,
       128,
       Code::package,
       {"a cause", "flash_attn or flash_attn_3"}},
      // FLASHINFER_ATTN
      {"sm=90,flashinfer=0.6.18,flashinfer_prefill=1", FLASHINFER_ATTN},
      {"sm=120,flashinfer_prefill=1", FLASHINFER_ATTN, 0},
      {"sm=90", FLASHINFER_ATTN, 128, Code::package, {"not installed", "flashinfer-python"}},
      {"sm=90,flashinfer=0.6.18",
       FLASHINFER_ATTN,
       128,
       Code::package,
       {"0.6.18 without BatchPrefillWithRaggedKVCacheWrapper"}},
      {"sm=90,flashinfer_prefill=1", FLASHINFER_ATTN, 72, Code::head_dim, {"72", "64, 128, 256"}},
      // CUDNN_ATTN
      {"sm=90,cudnn=9.19", CUDNN_ATTN, 72},
      {"sm=120,cudnn=9.4.99", CUDNN_ATTN, 128},
      {"sm=90,cudnn=unknown", CUDNN_ATTN, 0},
      {"sm=90,cudnn=9.19",
       CUDNN_ATTN,
       12,
       Code::head_dim,
       {"head_dim 12", "multiples of 8 up to 256", "FLASHINFER_ATTN or TORCH_SDPA"}},
      {"sm=90,cudnn=9.19", CUDNN_ATTN, 320, Code::head_dim, {"head_dim 320"}},
      {"sm=90,cudnn=8904", CUDNN_ATTN, 128, Code::version, {"8.9.4", ">= 9.0"}},
      {"sm=90", CUDNN_ATTN, 128, Code::package, {"cudnn is not installed"}},
      {"sm=75,cudnn=9.19", CUDNN_ATTN, 128, Code::architecture, {"sm_75"}},
      // TRTLLM_ATTN
      {"sm=100,trtllm=1", TRTLLM_ATTN},
      {"sm=103,trtllm=1", TRTLLM_ATTN, 0},
      {"sm=90,trtllm=1", TRTLLM_ATTN, 128, Code::architecture, {"sm_90", "sm_10x"}},
      {"sm=120,trtllm=1", TRTLLM_ATTN, 128, Code::architecture, {"sm_120"}},
      {"sm=100", TRTLLM_ATTN, 128, Code::package, {"trtllm_ragged_attention_deepseek"}},
      {"sm=100,flashinfer=0.6.18",
       TRTLLM_ATTN,
       128,
       Code::package,
       {"0.6.18 without trtllm_ragged_attention_deepseek"}},
      {"sm=100,trtllm=1", TRTLLM_ATTN, 64, Code::head_dim, {"64", "128"}},
      // Sparse
      {"sm=80,cuda=12.0,spas_sage_attn=1", SPARGE_ATTN},
      {"sm=86,spas_sage_attn=0.1", SPARGE_ATTN, 64},
      {"sm=100,spas_sage_attn=0.1", SPARGE_ATTN, 64, Code::architecture, {"sm_100"}},
      {"sm=90,cuda=11.8,spas_sage_attn=0.1", SPARGE_ATTN, 64, Code::version, {">= 12.0"}},
      {"sm=90", SPARGE_ATTN},
      {"sm=89", SPARGE_ATTN, 128, Code::package, {"spas_sage_attn or sparse_sageattn"}},
      {"sm=89,spas_sage_attn=1", SPARGE_ATTN, 96, Code::head_dim, {"64, 128"}},
      {"sm=80,flashinfer=0.6", RADIAL_ATTN},
      {"sm=80,sageattention=1", RADIAL_ATTN},
      {"sm=75,flashinfer=0.6", RADIAL_ATTN, 128, Code::architecture, {"sm_80 or newer"}},
      {"sm=80", RADIAL_ATTN, 128, Code::package, {"tf_kernel or flashinfer or sageattention"}},
      {"sm=80,block_sparse_attn=1", LOCAL_SPARSE_ATTN},
      {"sm=75,tf_kernel=1", LOCAL_SPARSE_ATTN, 128, Code::architecture, {"sm_75"}},
      {"sm=80", LOCAL_SPARSE_ATTN, 128, Code::package, {"tf_kernel or block_sparse_attn"}},
      {"sm=80,block_sparse_attn=1", BLOCK_SPARSE_ATTN},
      {"sm=80", BLOCK_SPARSE_ATTN, 128, Code::package, {"block_sparse_attn"}},
      {"sm=90,fastvideo_kernel=0.3.5", FASTVIDEO_VSA},
      {"sm=90", FASTVIDEO_VSA, 128, Code::package, {"fastvideo-kernel"}},
      // VDNH3_ATTN needs what FLASH_ATTN needs.
      {"sm=90", VDNH3_ATTN},
      {"sm=75", VDNH3_ATTN, 128, Code::architecture, {"sm_75"}},
      {"sm=120", VDNH3_ATTN, 128, Code::package, {"fa4"}},
      // Exact portable attention
      {"sm=75", TORCH_SDPA},
      {"sm=120", TORCH_SDPA, 320},
      // Other platforms
      {"sm=90", RAINFUSION_ATTN, 128, Code::platform, {"cuda", "npu"}},
      {"sm=90", AITER_QUANT_ATTN, 128, Code::platform, {"cuda", "rocm"}},
      {"sm=90", REFERENCE, 128, Code::platform, {"cuda", "cpu", "CPU tensors"}},
      // Not known to be any device
      {"sm=unknown", FLASH_ATTN_2, 128, Code::architecture, {"unknown compute capability"}},
  };
  for (const Explicit& c : cases) expect_explicit(kCuda, c);
}

TEST(CudaPolicy, AllReasonsAreCollected) {
  const PolicyVerdict verdict =
      platform_for(kCuda, "sm=90,cuda=12.6")->judge(SAGE_ATTN_3, {96, false, {}});
  EXPECT_TRUE(find(verdict.reasons, Code::architecture));
  EXPECT_TRUE(find(verdict.reasons, Code::package));
  EXPECT_TRUE(find(verdict.reasons, Code::head_dim));
}

TEST(CudaPolicy, NoPackageIsRecommendedForADeviceThatCannotUseIt) {
  const PolicyVerdict verdict = platform_for(kCuda, "sm=75")->judge(FLASH_ATTN_4, {});
  const std::optional<Reason> package = find(verdict.reasons, Code::package);
  ASSERT_TRUE(package);
  EXPECT_EQ(package->remedy, "");
}

struct Embedded {
  const char* facts;
  BackendName backend;
  const char* needed;  // null: runs
};

TEST(CudaPolicy, EmbeddedArchitecturesAreChecked) {
  const Embedded cases[] = {
      {"sm=89,kernels=sm_90a", FLASH_ATTN, "sm_80"},
      {"sm=89,kernels=sm_90a", FLASH_ATTN_2, "sm_80"},
      {"sm=89,kernels=sm_90a", TORCH_SDPA, "sm_80"},
      {"sm=75,kernels=sm_90a", TORCH_SDPA, "sm_80"},
      {"sm=100,kernels=sm_90a", FLASH_ATTN_2, "sm_80"},
      {"sm=90,kernels=sm_80", FLASH_ATTN_3, "sm_90a"},
      {"sm=90,kernels=none", FLASH_ATTN, "sm_80"},
      {"sm=90,kernels=none", FLASH_ATTN_3, "sm_90a"},
      {"sm=80,kernels=sm_86", FLASH_ATTN, "sm_80"},
      {"sm=90,kernels=sm_90a", FLASH_ATTN, nullptr},
      {"sm=90,kernels=sm_90a", FLASH_ATTN_2, nullptr},
      {"sm=90,kernels=sm_90a", FLASH_ATTN_3, nullptr},
      {"sm=90,kernels=sm_90a", TORCH_SDPA, nullptr},
      {"sm=90,kernels=sm_80", FLASH_ATTN, nullptr},
      {"sm=86,kernels=sm_80", FLASH_ATTN, nullptr},
      {"sm=89,kernels=sm_86", FLASH_ATTN, nullptr},
      {"sm=120,kernels=sm_80", FLASH_ATTN_2, nullptr},
      {"sm=75,kernels=sm_80", TORCH_SDPA, nullptr},
      {"sm=89", FLASH_ATTN, nullptr},
      {"sm=90,kernels=unknown", FLASH_ATTN_3, nullptr},
  };
  for (const Embedded& c : cases) {
    SCOPED_TRACE(std::string(c.facts) + ' ' + name(c.backend));
    const PolicyVerdict verdict = platform_for(kCuda, c.facts)->judge(c.backend, {128, false, {}});
    if (c.needed == nullptr) {
      EXPECT_TRUE(verdict.reasons.empty()) << sentence(verdict.reasons);
      continue;
    }
    ASSERT_EQ(verdict.reasons.size(), 1u) << sentence(verdict.reasons);
    EXPECT_EQ(verdict.reasons[0].accepted, c.needed);
    EXPECT_NE(verdict.reasons[0].remedy.find("rebuild"), std::string::npos);
  }
  const PolicyVerdict verdict =
      platform_for(kCuda, "sm=89,kernels=sm_90a")->judge(FLASH_ATTN, {128, false, {}});
  EXPECT_NE(sentence(verdict.reasons).find("built for sm_90a, device is sm_89"), std::string::npos);
}

TEST(CudaPolicy, ARequestedProviderIsUsedOrRefused) {
  const auto both = platform_for(kCuda, "sm=90,flash_attn=2.8");
  EXPECT_EQ(both->judge(FLASH_ATTN, {128, false, "package"}).provider, "package flash_attn 2.8");
  EXPECT_EQ(both->judge(FLASH_ATTN, {128, false, "fovea"}).provider, "fovea");
  const PolicyVerdict wrong = both->judge(FLASH_ATTN, {128, false, "cudnn"});
  expect_complete(wrong);
  EXPECT_EQ(wrong.reasons[0].code, Code::provider);
  EXPECT_EQ(wrong.reasons[0].accepted, "fovea, package");
  const PolicyVerdict missing =
      platform_for(kCuda, "sm=90")->judge(FLASH_ATTN, {128, false, "package"});
  expect_complete(missing);
  EXPECT_EQ(missing.reasons[0].code, Code::package);
  const PolicyVerdict hidden =
      platform_for(kCuda, "sm=90,fovea_kernels=0")->judge(FLASH_ATTN, {128, false, "fovea"});
  expect_complete(hidden);
}

}  // namespace
}  // namespace fovea
