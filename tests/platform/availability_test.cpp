#include <gtest/gtest.h>

#include <string>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using State = Availability::State;

struct Case {
  PlatformId platform;
  const char* facts;
  BackendName backend;
  State state;
  const char* cause;    // part of it
  const char* install;  // part of it
};

TEST(Availability, SaysWhatWouldMakeANameUsable) {
  const Case cases[] = {
      {PlatformId::cpu, "isa=avx2", FLASH_ATTN, State::available, "", ""},
      {PlatformId::cpu, "isa=avx2", REFERENCE, State::available, "", ""},
      {PlatformId::cpu, "isa=avx2", CUDNN_ATTN, State::wrong_device, "cuda", ""},
      {PlatformId::cuda, "sm=90", FLASH_ATTN_3, State::available, "", ""},
      {PlatformId::cuda, "sm=89", FLASH_ATTN_3, State::wrong_device, "sm_89", ""},
      {PlatformId::cuda, "sm=89", FLASH_ATTN_4, State::wrong_device, "sm_89", ""},
      {PlatformId::cuda, "sm=89,kernels=sm_90a", FLASH_ATTN, State::not_built,
       "built for sm_90a, device is sm_89", "--cuda sm80"},
      {PlatformId::cuda, "sm=90", SAGE_ATTN, State::package_missing, "sageattention",
       "SageAttention"},
      {PlatformId::cuda, "sm=90,flashinfer=0.6.18", FLASHINFER_ATTN, State::package_broken,
       "without BatchPrefillWithRaggedKVCacheWrapper", "flashinfer-python"},
      {PlatformId::cuda, "sm=120,flash_attn=2.8", FLASH_ATTN, State::package_broken, "without cute",
       "flash-attn-4"},
      {PlatformId::cuda, "sm=90,cudnn=8.9", CUDNN_ATTN, State::package_broken, "8.9", "cudnn"},
      {PlatformId::cuda, "sm=90,cuda=11.4", FLASH_ATTN_2, State::package_broken, "11.4", "CUDA"},
      {PlatformId::cuda, "sm=90,flashinfer_prefill=1", FLASHINFER_ATTN, State::not_built, "binding",
       ""},
      {PlatformId::npu, "", FLASH_ATTN, State::package_missing, "mindiesd", "mindiesd"},
      {PlatformId::rocm, "gfx=gfx90a", FLASH_ATTN, State::wrong_device, "gfx90a", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.facts) + ' ' + name(c.backend));
    const Availability result = availability(c.backend, *platform_for(c.platform, c.facts));
    EXPECT_EQ(result.backend, c.backend);
    EXPECT_EQ(result.state, c.state) << name(result.state);
    EXPECT_NE(result.cause.find(c.cause), std::string::npos) << result.cause;
    EXPECT_NE(result.install.find(c.install), std::string::npos) << result.install;
    EXPECT_EQ(result.cause.empty(), c.state == State::available);
    EXPECT_EQ(result.install.empty(), *c.install == '\0') << result.install;
  }
}

TEST(Availability, NamesAProviderWhereverAPlatformKnowsOne) {
  const std::pair<BackendName, const char*> cases[] = {{AITER_QUANT_ATTN, "package aiter"},
                                                       {RAINFUSION_ATTN, "package mindiesd"},
                                                       {FLASH_ATTN_2, "fovea"},
                                                       {CUDNN_ATTN, "cudnn"},
                                                       {FLASH_ATTN_4, "package fa4"},
                                                       {FLASH_ATTN_HUB, "package hub_kernels"}};
  for (const auto& [backend, provider] : cases) {
    const Availability result = availability(backend, *platform_for(PlatformId::cpu, "isa=avx2"));
    EXPECT_EQ(result.state, State::wrong_device);
    EXPECT_EQ(result.provider, provider);
    EXPECT_NE(result.cause.find("runs on: "), std::string::npos) << result.cause;
  }
  for (const DevicePreset& preset : device_presets()) {
    const auto platform = make_platform(preset_facts(preset.name).value());
    for (const BackendNameInfo& info : backend_names())
      EXPECT_FALSE(availability(info.name, *platform).provider.empty())
          << preset.name << ' ' << name(info.name);
  }
}

TEST(Availability, EveryNameOnEveryPresetHasAnAnswer) {
  for (const DevicePreset& preset : device_presets()) {
    const auto platform = make_platform(preset_facts(preset.name).value());
    for (const BackendNameInfo& info : backend_names()) {
      SCOPED_TRACE(std::string(preset.name) + ' ' + std::string(info.canonical));
      const Availability result = availability(info.name, *platform);
      EXPECT_EQ(result.state == State::available, result.cause.empty());
      const bool fixable =
          result.state == State::package_missing || result.state == State::package_broken;
      EXPECT_TRUE(!fixable || !result.install.empty());
    }
  }
}

TEST(Availability, StatesHaveDistinctNames) {
  EXPECT_EQ(name(State::available), "runs here");
  EXPECT_EQ(name(State::not_built), "not built");
  EXPECT_EQ(name(State::wrong_device), "not for this device");
  EXPECT_EQ(name(State::package_missing), "package missing");
  EXPECT_EQ(name(State::package_broken), "package broken");
}

TEST(Availability, AnAddedNameWaitsForItsRegistration) {
  const BackendName added = add_backend_name("AVAILABILITY_TEST").value();
  const Availability result = availability(added, *platform_for(PlatformId::cpu, ""));
  EXPECT_EQ(result.state, State::not_built);
  EXPECT_NE(result.cause.find("AVAILABILITY_TEST"), std::string::npos);
}

}  // namespace
}  // namespace fovea
