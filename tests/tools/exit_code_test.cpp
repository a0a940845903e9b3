#include "tools/fovea/exit_code.hpp"

#include <gtest/gtest.h>

namespace fovea::cli {
namespace {

TEST(ExitCode, FollowsTheGroupOfTheError) {
  EXPECT_EQ(exit_code(ErrorCode::invalid_argument), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_config), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_problem), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_facts), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_file), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_tensor), 2);
  EXPECT_EQ(exit_code(ErrorCode::invalid_value), 2);
  EXPECT_EQ(exit_code(ErrorCode::unsupported), 3);
  EXPECT_EQ(exit_code(ErrorCode::not_built), 3);
  EXPECT_EQ(exit_code(ErrorCode::not_available), 3);
  EXPECT_EQ(exit_code(ErrorCode::device_error), 4);
  EXPECT_EQ(exit_code(ErrorCode::out_of_memory), 4);
  EXPECT_EQ(exit_code(ErrorCode::workspace_too_small), 4);
  EXPECT_EQ(exit_code(ErrorCode::communication_error), 4);
  EXPECT_EQ(exit_code(ErrorCode::internal), 5);
}

}  // namespace
}  // namespace fovea::cli
