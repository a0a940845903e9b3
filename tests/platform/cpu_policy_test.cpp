#include <gtest/gtest.h>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;

constexpr PlatformId kCpu = PlatformId::cpu;

TEST(CpuPolicy, FlashIsTheDefaultAndSdpaTheSecond) {
  for (const char* facts :
       {"", "isa=generic", "isa=avx2", "isa=avx512bf16", "isa=amx", "isa=neon"}) {
    const auto platform = platform_for(kCpu, facts);
    EXPECT_EQ(chosen(*platform, {}), "FLASH_ATTN");
    EXPECT_EQ(order(*platform, {}), (std::vector<std::string>{"FLASH_ATTN", "TORCH_SDPA"}));
  }
}

TEST(CpuPolicy, BothDenseNamesRunOneKernel) {
  const auto platform = platform_for(kCpu, "isa=avx2");
  for (const BackendName dense : {FLASH_ATTN, TORCH_SDPA}) {
    const PolicyVerdict verdict = platform->judge(dense, {320, false, {}});
    EXPECT_TRUE(verdict.reasons.empty());
    EXPECT_EQ(verdict.path, "builtin:cpu_flash");
    EXPECT_EQ(verdict.provider, "fovea");
  }
}

TEST(CpuPolicy, TheReferenceRunsByNameOnly) {
  const auto platform = platform_for(kCpu, "isa=avx2");
  const PolicyVerdict verdict = platform->judge(REFERENCE, {});
  EXPECT_TRUE(verdict.reasons.empty());
  EXPECT_EQ(verdict.path, "builtin:reference");
  for (const std::string& entry : order(*platform, {})) EXPECT_NE(entry, "REFERENCE");
}

TEST(CpuPolicy, SparseNamesBelongToThisProject) {
  const auto platform = platform_for(kCpu, "isa=avx2");
  for (const BackendName sparse :
       {RADIAL_ATTN, LOCAL_SPARSE_ATTN, SPARGE_ATTN, BLOCK_SPARSE_ATTN}) {
    const PolicyVerdict verdict = platform->judge(sparse, {128, false, {}});
    SCOPED_TRACE(name(sparse));
    EXPECT_EQ(verdict.provider, "fovea");
    EXPECT_EQ(verdict.path, "builtin:block_sparse");
    EXPECT_TRUE(verdict.reasons.empty());
  }
}

TEST(CpuPolicy, EveryOtherNameIsRefusedWithItsPlatforms) {
  const auto platform = platform_for(kCpu, "isa=avx2");
  const std::vector<BackendName> here = {FLASH_ATTN,       TORCH_SDPA,        REFERENCE,
                                         RADIAL_ATTN,      LOCAL_SPARSE_ATTN, SPARGE_ATTN,
                                         BLOCK_SPARSE_ATTN};
  for (const BackendNameInfo& info : backend_names()) {
    if (std::find(here.begin(), here.end(), info.name) != here.end()) continue;
    SCOPED_TRACE(info.canonical);
    const PolicyVerdict verdict = platform->judge(info.name, {128, false, {}});
    expect_complete(verdict);
    EXPECT_EQ(verdict.reasons[0].code, ReasonCode::platform);
    EXPECT_EQ(verdict.reasons[0].got, "cpu");
    EXPECT_TRUE(verdict.path.empty());
  }
}

}  // namespace
}  // namespace fovea
