// Ends the program when one case takes longer than a minute: a kernel that hangs can be waited for
// only by waiting for ever, and the programs after this one should get their turn.
#include <gtest/gtest.h>
#include <unistd.h>

#include "src/cuda_device/device.hpp"

namespace fovea {
namespace {

constexpr unsigned kSeconds = 60;

class CaseAlarm final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(kSeconds); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

class WithCaseAlarm final : public testing::Environment {
  void SetUp() override {
    if (cuda::device_count()) testing::UnitTest::GetInstance()->listeners().Append(new CaseAlarm);
  }
};

const testing::Environment* const kInstalled = testing::AddGlobalTestEnvironment(new WithCaseAlarm);

}  // namespace
}  // namespace fovea
