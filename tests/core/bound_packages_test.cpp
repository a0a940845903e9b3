#include "src/core/bound_packages.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(BoundPackages, KeepTheReleaseNumber) {
  const uint64_t before = bound_packages_epoch();
  note_bound_package("one", "4.0.0b36");
  note_bound_package("two", "2.8.3.post1");
  note_bound_package("three", "main");
  note_bound_package("four", "");
  const auto packages = bound_packages();
  EXPECT_EQ(packages.at("one"), "4.0.0");
  EXPECT_EQ(packages.at("two"), "2.8.3");
  EXPECT_EQ(packages.at("three"), "unknown");
  EXPECT_EQ(packages.at("four"), "unknown");
  EXPECT_EQ(bound_packages_epoch(), before + 4);
  for (const char* package : {"one", "two", "three", "four"}) forget_bound_package(package);
  EXPECT_TRUE(bound_packages().empty());
  EXPECT_EQ(bound_packages_epoch(), before + 8);
  forget_bound_package("one");
  EXPECT_EQ(bound_packages_epoch(), before + 8);
}

}  // namespace
}  // namespace fovea
