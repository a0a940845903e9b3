// The platform's table and the instance tables never contradict each other about a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fovea/platform.hpp"
#include "src/backends/list.hpp"

namespace fovea {
namespace {

const char* const kDevices[] = {"sm=75",
                                "sm=80",
                                "sm=86",
                                "sm=89",
                                "sm=90",
                                "sm=100",
                                "sm=103",
                                "sm=120",
                                "sm=90,kernels=sm_80",
                                "sm=90,kernels=sm_90a",
                                "sm=80,kernels=sm_90a"};

bool listed(std::string_view path) {
  const auto list = backends::backend_list();
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.path == path; });
}

bool about_device(const Reason& reason) {
  return reason.code == ReasonCode::architecture || reason.code == ReasonCode::platform ||
         reason.code == ReasonCode::isa;
}

// The reasons of what stands behind `path` against the device alone.
std::vector<Reason> device_reasons(BackendName backend, std::string_view path,
                                   const DeviceFacts& facts) {
  std::vector<Reason> out;
  for (const backends::BackendEntry& entry : backends::backend_list()) {
    if (entry.path != path) continue;
    ExecutionContext context;
    context.facts = facts;
    context.local = false;
    Problem problem;
    problem.dtype = problem.out_dtype = facts.platform() == PlatformId::cpu ? kF32 : kBF16;
    problem.head_dim = problem.dim_v = 128;
    problem.seq_q = problem.seq_kv = 256;
    fill_strides(problem);
    for (const Reason& reason : entry.make()->resolve(backend, problem, nullptr, context).reasons)
      if (about_device(reason)) out.push_back(reason);
  }
  return out;
}

// A name with several kernels takes one that the binary holds.
TEST(PolicyAndTables, KernelsAreThoseThatTheBinaryEmbeds) {
  const auto path_of = [](const char* facts) {
    ExecutionContext context;
    context.facts = *parse_facts(PlatformId::cuda, facts);
    context.local = false;
    const Problem problem = *parse_problem("bf16 b1 h8 s512 d128");
    for (const backends::BackendEntry& entry : backends::backend_list())
      if (entry.path == "builtin:flash")
        return entry.make()->resolve(backend::FLASH_ATTN, problem, nullptr, context).path;
    return std::string("no builtin:flash");
  };
  EXPECT_EQ(path_of("sm=90"), "cuda.flash_sm90");
  EXPECT_EQ(path_of("sm=90,kernels=sm_80+sm_90a"), "cuda.flash_sm90");
  EXPECT_EQ(path_of("sm=90,kernels=sm_90a"), "cuda.flash_sm90");
  EXPECT_EQ(path_of("sm=90,kernels=sm_80"), "cuda.flash_sm80");
  EXPECT_EQ(path_of("sm=90,cuda=11.8"), "cuda.flash_sm80");
}

TEST(PolicyAndTables, WhatThePolicyAdmitsTheTableCanRun) {
  int agreed = 0;
  for (const char* text : kDevices) {
    const DeviceFacts facts = *parse_facts(PlatformId::cuda, text);
    const auto platform = make_platform(facts);
    for (const BackendNameInfo& info : backend_names()) {
      const PolicyVerdict verdict = platform->judge(info.name, {128, false, "fovea"});
      if (!verdict.reasons.empty() || !listed(verdict.path)) continue;
      // The kernels for sm_80 stand in a family of their own.
      if (verdict.path == "builtin:flash" && !listed("builtin:flash_sm80") &&
          facts.integer("sm") < 90)
        continue;
      SCOPED_TRACE(std::string(text) + ' ' + std::string(info.canonical));
      EXPECT_EQ(sentence(device_reasons(info.name, verdict.path, facts)), "");
      ++agreed;
    }
  }
  EXPECT_GT(agreed, 2);
}

TEST(PolicyAndTables, WhatTheTableCannotRunOnADeviceThePolicyRefuses) {
  for (const char* text : kDevices) {
    const DeviceFacts facts = *parse_facts(PlatformId::cuda, text);
    if (facts.integer("sm") == 90) continue;
    const PolicyVerdict verdict =
        make_platform(facts)->judge(backend::FLASH_ATTN_3, {128, false, "fovea"});
    ASSERT_FALSE(device_reasons(backend::FLASH_ATTN_3, "builtin:flash_sm90", facts).empty())
        << text;
    EXPECT_TRUE(std::any_of(verdict.reasons.begin(), verdict.reasons.end(), about_device)) << text;
  }
}

TEST(PolicyAndTables, TheCpuPolicyNamesPathsThatExist) {
  const DeviceFacts facts = *parse_facts(PlatformId::cpu, "isa=avx2");
  const auto platform = make_platform(facts);
  for (const BackendName backend : {backend::FLASH_ATTN, backend::TORCH_SDPA, backend::REFERENCE}) {
    const PolicyVerdict verdict = platform->judge(backend, {});
    EXPECT_TRUE(verdict.reasons.empty());
    EXPECT_TRUE(listed(verdict.path)) << verdict.path;
    EXPECT_TRUE(device_reasons(backend, verdict.path, facts).empty());
  }
}

}  // namespace
}  // namespace fovea
