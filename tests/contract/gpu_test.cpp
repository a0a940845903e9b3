// Says why the GPU's part of the suite is empty where it is.
#include <gtest/gtest.h>

#include "src/cuda_device/device.hpp"
#include "tests/contract/target.hpp"

namespace fovea::contract {
namespace {

TEST(Gpu, EveryDeviceHasATarget) {
  const auto count = cuda::device_count();
  if (!count) GTEST_SKIP() << count.error().message;
  bool found = false;
  for (const Target& target : targets()) found = found || target.label.starts_with("cuda_");
  EXPECT_TRUE(found) << "no backend of this binary runs on the device";
}

}  // namespace
}  // namespace fovea::contract
