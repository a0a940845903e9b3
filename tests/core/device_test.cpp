#include "fovea/device.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(Device, text_reads_back_as_the_same_device) {
  for (Device device : {kCpu, Device{DeviceType::cuda, 0}, Device{DeviceType::cuda, 7}}) {
    const Result<Device> parsed = parse_device(to_string(device));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(device, *parsed);
  }
  EXPECT_EQ("cuda:1", to_string(Device{DeviceType::cuda, 1}));
  EXPECT_EQ("cpu", to_string(kCpu));
}

TEST(Device, case_and_blanks_do_not_matter) {
  EXPECT_EQ((Device{DeviceType::cuda, 0}), *parse_device(" CUDA "));
}

TEST(Device, errors_name_what_is_accepted) {
  for (std::string_view bad :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "cuda:2147483648"}) {
    const Result<Device> parsed = parse_device(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(ErrorCode::invalid_argument, parsed.error().code);
  }
  EXPECT_EQ("device 'gpu' is not known (accepted: cpu, cuda, cuda:N)",
            parse_device("gpu").error().message);
}

}  // namespace
}  // namespace fovea
