// A program of its own: a permission once granted stays for the whole process.
#include <gtest/gtest.h>

#if defined(__linux__)

#include <csignal>
#include <cstdlib>

#include "fovea/device_facts.hpp"
#include "src/simd/cpu_features.hpp"

namespace fovea::simd {
namespace {

// Linux refuses tile registers while a thread has a signal stack too small for them.
TEST(AmxRefusal, LeavesTheLevelBelowAndSaysWhy) {
  static char memory[3000];
  stack_t small{};
  small.ss_sp = memory;
  small.ss_size = sizeof(memory);
  if (sigaltstack(&small, nullptr) != 0) GTEST_SKIP() << "small signal stacks are refused anyway";
  const std::string_view refused = amx_refusal();
  const Isa with_stack = probe_isa();
  setenv("FOVEA_ISA", "amx", 1);
  const Result<DeviceFacts> facts = probe_cpu();
  unsetenv("FOVEA_ISA");

  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ASSERT_EQ(sigaltstack(&none, nullptr), 0);
  if (!amx_refusal().empty()) GTEST_SKIP() << amx_refusal();
  EXPECT_NE(refused.find("Linux refused"), std::string_view::npos) << refused;
  EXPECT_FALSE(includes(with_stack, Isa::amx));
  ASSERT_FALSE(facts);
  EXPECT_NE(facts.error().message.find(refused), std::string::npos) << facts.error().message;
  EXPECT_EQ(probe_isa(), Isa::amx);
}

}  // namespace
}  // namespace fovea::simd

#endif
