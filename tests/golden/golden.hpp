// Comparing texts with the files of tests/golden, exactly.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

// The build defines it; tests run in the source root.
#ifndef FOVEA_SOURCE_DIR
#define FOVEA_SOURCE_DIR "."
#endif

namespace fovea::golden {

// Expects `actual` to be the content of tests/golden/<name>. With FOVEA_UPDATE_GOLDEN=1 in the
// environment the file is written instead and the test fails, so that an update is never unseen.
inline void expect_equal(const std::string& name, const std::string& actual) {
  const std::filesystem::path path =
      std::filesystem::path(FOVEA_SOURCE_DIR) / "tests" / "golden" / name;
  if (const char* update = std::getenv("FOVEA_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream(path) << actual;
    ADD_FAILURE() << path << " was written; read the difference and run again";
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " cannot be read";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(expected.str(), actual) << "golden file: " << path;
}

}  // namespace fovea::golden
