// What must hold for every row of every policy table.
#include "src/platform/table_platform.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "src/platform/check.hpp"
#include "src/platform/package.hpp"
#include "tests/platform/policy_cases.hpp"

namespace fovea::platform {
namespace {

using namespace policy_cases;

TEST(PolicyTables, EveryNameHasARowSomewhere) {
  for (const BackendNameInfo& info : backend_names())
    EXPECT_FALSE(platforms_of(info.name).empty()) << info.canonical;
}

TEST(PolicyTables, EachTableAnswersForItsPlatform) {
  for (const PlatformId id : kAllPlatforms) EXPECT_EQ(policy(id).platform, id);
}

TEST(PolicyTables, RowsNameBackendsPackagesAndFactsThatExist) {
  for (const PlatformId id : kAllPlatforms) {
    std::set<std::string_view> keys;
    for (const FactKey& key : fact_keys(id)) keys.insert(key.key);
    for (const Row& row : policy(id).rows) {
      SCOPED_TRACE(std::string(fovea::name(id)) + ' ' + fovea::name(row.backend));
      ASSERT_LT(row.backend.id(), backend_names().size());
      EXPECT_EQ(row.provider == Provider::fovea, row.package.empty());
      if (!row.package.empty()) {
        EXPECT_EQ(package(row.package).id, row.package);
        const std::string_view fact = package(row.package).fact;
        EXPECT_TRUE(fact.empty() || keys.contains(fact)) << fact;
      }
      for (const Check& check : row.checks) {
        if (check.kind == Check::Kind::installed) {
          EXPECT_EQ(package(check.key).id, check.key);
          EXPECT_TRUE(keys.contains(package(check.key).fact));
        } else if (!check.key.empty()) {
          EXPECT_TRUE(keys.contains(check.key)) << check.key;
        }
        EXPECT_EQ(of_device(check.kind), !accepted_devices(check).empty());
      }
      // What the device can refuse says what to use instead.
      for (const Check& check : row.checks)
        EXPECT_TRUE(!of_device(check.kind) || !row.instead.empty());
    }
    for (const Preference& entry : policy(id).order)
      EXPECT_FALSE(platforms_of(entry.backend).empty());
  }
}

TEST(PolicyTables, EveryPlatformEndsWithPortableAttention) {
  for (const PlatformId id : kAllPlatforms)
    EXPECT_EQ(policy(id).order.back().backend, backend::TORCH_SDPA);
}

TEST(PolicyTables, TheReferenceIsNeverAutomatic) {
  for (const PlatformId id : kAllPlatforms)
    for (const Preference& entry : policy(id).order) EXPECT_NE(entry.backend, backend::REFERENCE);
}

// Every refusal in the cross product of names, devices and head sizes is complete, and an accepted
// name says who provides it and where it is registered.
TEST(PolicyTables, EveryAnswerIsComplete) {
  const std::pair<PlatformId, std::vector<std::string>> devices[] = {
      {PlatformId::cpu, {"", "isa=generic", "isa=avx512"}},
      {PlatformId::cuda,
       {"sm=70", "sm=75", "sm=80", "sm=86", "sm=89", "sm=90", "sm=100", "sm=103", "sm=110",
        "sm=120", "sm=121", "sm=unknown", "sm=90,fovea_kernels=0", "sm=120,fovea_kernels=0",
        "sm=90,kernels=none", "sm=89,kernels=sm_90a",
        "sm=90,cuda=11.0,cudnn=8.9,hub_kernels=0.1,sageattention=1.0.6,flashinfer=0.6",
        "sm=120,cuda=,cudnn=,flash_attn=,flashinfer=unknown"}},
      {PlatformId::rocm, {"", "gfx=gfx942", "gfx=gfx90a,aiter=1"}},
      {PlatformId::npu, {"", "mindiesd=1"}},
      {PlatformId::xpu, {"", "arch=13136561920"}},
      {PlatformId::musa, {"", "cc=2.2", "cc=3.1"}}};
  for (const auto& [id, list] : devices)
    for (const std::string& facts : list) {
      const auto platform = platform_for(id, facts);
      for (const BackendNameInfo& info : backend_names())
        for (const int64_t head_dim : {0, 12, 64, 72, 128, 320})
          for (const char* provider : {"", "fovea", "cudnn", "package"}) {
            SCOPED_TRACE(platform->facts().text() + ' ' + std::string(info.canonical) + " head " +
                         std::to_string(head_dim) + ' ' + provider);
            const PolicyVerdict verdict = platform->judge(info.name, {head_dim, false, provider});
            EXPECT_EQ(verdict.backend, info.name);
            if (!verdict.reasons.empty()) {
              expect_complete(verdict);
            } else {
              EXPECT_FALSE(verdict.provider.empty());
              EXPECT_NE(verdict.path.find(':'), std::string::npos);
              EXPECT_TRUE(*provider == '\0' || verdict.provider.starts_with(provider));
            }
          }
      for (const PolicyVerdict& verdict : platform->preference({128, false, {}}))
        if (!verdict.reasons.empty()) expect_complete(verdict);
    }
}

TEST(PolicyTables, EveryNameIsAcceptedSomewhereAndRefusedSomewhere) {
  const std::shared_ptr<const Platform> generous[] = {
      platform_for(PlatformId::cpu, "isa=avx2"),
      platform_for(
          PlatformId::cuda,
          "sm=90,cuda=13.0,cudnn=9.19,flash_attn=2.8,flash_attn_3=3.0,fa4=4.0,"
          "flashinfer=0.6.18,flashinfer_prefill=1,trtllm=1,sageattention=2.2,"
          "spas_sage_attn=0.1,block_sparse_attn=0.1,hub_kernels=0.17,fastvideo_kernel=0.3"),
      platform_for(PlatformId::cuda, "sm=100,trtllm=1,sageattn3=1.0"),
      platform_for(PlatformId::rocm, "gfx=gfx942,aiter=0.1.7"),
      platform_for(PlatformId::npu, "mindiesd=3.1.0")};
  const std::shared_ptr<const Platform> bare[] = {
      platform_for(PlatformId::cuda, "sm=75,kernels=none"), platform_for(PlatformId::npu, "")};
  for (const BackendNameInfo& info : backend_names()) {
    SCOPED_TRACE(info.canonical);
    const auto accepts = [&](const std::shared_ptr<const Platform>& platform) {
      return platform->judge(info.name, {128, true, {}}).reasons.empty();
    };
    EXPECT_TRUE(std::any_of(std::begin(generous), std::end(generous), accepts));
    EXPECT_FALSE(std::all_of(std::begin(bare), std::end(bare), accepts));
  }
}

TEST(TablePlatform, NamesAddedAtRunTimeCarryNoPolicy) {
  const BackendName added = add_backend_name("TABLE_PLATFORM_TEST").value();
  const PolicyVerdict verdict = platform_for(PlatformId::cuda, "sm=90")->judge(added, {});
  EXPECT_TRUE(verdict.reasons.empty());
  EXPECT_TRUE(verdict.path.empty());
  EXPECT_TRUE(platforms_of(added).empty());
}

TEST(TablePlatform, KeepsItsFacts) {
  EXPECT_EQ(platform_for(PlatformId::cuda, "sm=9.0")->facts().text(), "cuda: sm=90");
}

}  // namespace
}  // namespace fovea::platform
