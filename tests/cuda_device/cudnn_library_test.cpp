#include "src/cuda_device/cudnn_library.hpp"

#include <gtest/gtest.h>

#include "fovea/device_facts.hpp"

namespace fovea::cuda {
namespace {

// One test, because the library is loaded once per process.
TEST(CudnnLibrary, AbsenceIsAReasonAndTheFileCanBeNamed) {
  ASSERT_TRUE(set_cudnn_file("no-such-folder/libcudnn.so.9").has_value());
  const auto nowhere = load_cudnn();
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::not_available);
  for (const char* part : {"no-such-folder/libcudnn.so.9", "pip install nvidia-cudnn-cu13"})
    EXPECT_NE(nowhere.error().message.find(part), std::string::npos) << nowhere.error().message;

  ASSERT_TRUE(set_cudnn_file("libc.so.6").has_value());
  const auto other = load_cudnn();
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("no cudnnGetVersion"), std::string::npos)
      << other.error().message;

  ASSERT_TRUE(set_cudnn_file("libcudnn.so.9").has_value());
  const auto library = load_cudnn();
  if (!library) GTEST_SKIP() << library.error().message;
  EXPECT_TRUE(parse_version((*library)->version).has_value());
  EXPECT_NE((*library)->handle, nullptr);
  EXPECT_EQ(*load_cudnn(), *library) << "loaded once";
  EXPECT_TRUE(set_cudnn_file("libcudnn.so.9").has_value());
  const Status late = set_cudnn_file("no-such-folder/libcudnn.so.9");
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fovea::cuda
