#include "src/cuda_device/device.hpp"

#include <gtest/gtest.h>

#include "fovea/attention.hpp"
#include "fovea/device_facts.hpp"
#include "src/core/build_info.hpp"
#include "src/cuda_device/memory.hpp"

namespace fovea::cuda {
namespace {

bool built() { return build_info().cuda[0] != '\0'; }

// What every question must answer on a machine without a device: an error that says what to do.
void expect_refused(const Error& error) {
  EXPECT_EQ(error.code, built() ? ErrorCode::device_error : ErrorCode::not_built);
  const char* remedy = built() ? "NVIDIA" : "./dev build --cuda auto";
  EXPECT_NE(error.message.find(remedy), std::string::npos) << error.message;
}

TEST(CudaDevice, WithoutADeviceEveryQuestionSaysWhy) {
  if (device_count()) GTEST_SKIP() << "this machine has a GPU";
  expect_refused(device_count().error());
  expect_refused(device_info(0).error());
  expect_refused(probe_cuda(0).error());
  expect_refused(Memory::allocate(16, {DeviceType::cuda, 0}, {}).error());
}

TEST(CudaDevice, CallsOnItsTensorsAreRefusedNotCrashed) {
  if (device_count()) GTEST_SKIP() << "this machine has a GPU";
  const Device device{DeviceType::cuda, 0};
  float memory[64] = {};
  const TensorView view = make_view(memory, kBF16, {1, 4, 1, 8}, device);
  const auto result = attention(view, view, view);
  ASSERT_FALSE(result.has_value());
  expect_refused(result.error());
}

TEST(CudaDevice, FactsAreOfTheDevice) {
  const auto count = device_count();
  if (!count) GTEST_SKIP() << count.error().message;
  for (int index = 0; index < *count; ++index) {
    const auto facts = probe_cuda(index);
    ASSERT_TRUE(facts.has_value()) << facts.error().message;
    EXPECT_EQ(facts->platform(), PlatformId::cuda);
    EXPECT_GE(facts->integer("sm").value_or(0), 50);
    EXPECT_TRUE(facts->version("cuda").has_value());
    EXPECT_TRUE(facts->has("driver"));
    EXPECT_FALSE(facts->get("name")->empty());
    EXPECT_EQ(facts->get("kernels"), std::string_view(build_info().cuda_embedded));
    EXPECT_GT((*device_info(index))->memory_bytes, int64_t{1} << 30);
    EXPECT_EQ(*device_info(index), *device_info(index)) << "asked once";
  }
  for (int index : {-1, *count}) {
    const auto beyond = probe_cuda(index);
    ASSERT_FALSE(beyond.has_value());
    EXPECT_EQ(beyond.error().code, ErrorCode::device_error);
    EXPECT_NE(beyond.error().message.find("no cuda:" + std::to_string(index)), std::string::npos)
        << beyond.error().message;
  }
}

}  // namespace
}  // namespace fovea::cuda
