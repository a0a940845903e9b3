#include "src/core/build_info.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace fovea {
namespace {

std::string project_version() {
  std::ifstream file(FOVEA_SOURCE_DIR "/CMakeLists.txt");
  for (std::string word; file >> word;) {
    if (word == "VERSION" && file >> word && word.find("3.") != 0) return word;
  }
  return "";
}

TEST(BuildInfo, version_is_the_one_in_the_build_description) {
  EXPECT_EQ(project_version(), build_info().version);
}

TEST(BuildInfo, a_binary_without_cuda_embeds_no_kernels) {
  const std::string cuda = build_info().cuda;
  const std::string embedded = build_info().cuda_embedded;
  EXPECT_EQ(cuda.empty(), embedded.empty()) << cuda << " / " << embedded;
}

}  // namespace
}  // namespace fovea
