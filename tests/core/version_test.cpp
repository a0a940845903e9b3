#include "fovea/version.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/core/build_info.hpp"

namespace fovea {
namespace {

TEST(Version, header_library_and_build_description_agree) {
  EXPECT_EQ(std::to_string(FOVEA_VERSION_MAJOR) + "." + std::to_string(FOVEA_VERSION_MINOR) + "." +
                std::to_string(FOVEA_VERSION_PATCH),
            version());
  EXPECT_STREQ(build_info().version, version());
}

}  // namespace
}  // namespace fovea
