#include "fovea/error.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace fovea {
namespace {

constexpr ErrorCode kAll[] = {
    ErrorCode::invalid_argument, ErrorCode::invalid_config,      ErrorCode::invalid_problem,
    ErrorCode::invalid_facts,    ErrorCode::invalid_file,        ErrorCode::invalid_tensor,
    ErrorCode::invalid_value,    ErrorCode::unsupported,         ErrorCode::not_built,
    ErrorCode::not_available,    ErrorCode::device_error,        ErrorCode::out_of_memory,
    ErrorCode::internal,         ErrorCode::workspace_too_small, ErrorCode::communication_error};

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::invalid_value, "odd", {}};
  return value / 2;
}

Result<int> quarter(int value) {
  FOVEA_TRY(const int once, half(value));
  FOVEA_TRY(const int twice, half(once));
  return twice;
}

Status even(int value) {
  FOVEA_CHECK(half(value).has_value() ? Status() : Status(half(value).error()));
  return {};
}

TEST(Error, every_code_has_its_own_name) {
  std::set<std::string_view> names;
  for (ErrorCode code : kAll) {
    EXPECT_NE("unknown", name(code));
    EXPECT_TRUE(names.insert(name(code)).second) << name(code);
  }
  EXPECT_EQ("unknown", name(static_cast<ErrorCode>(999)));
}

TEST(Error, try_binds_values_and_returns_errors) {
  EXPECT_EQ(3, *quarter(12));
  EXPECT_EQ("odd", quarter(6).error().message);
  EXPECT_EQ(ErrorCode::invalid_value, quarter(3).error().code);
}

TEST(Error, check_returns_the_error_of_a_status) {
  EXPECT_TRUE(even(2));
  EXPECT_EQ("odd", even(1).error().message);
}

TEST(Error, results_hold_types_that_only_move) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result);
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(7, *value);
}

TEST(Error, value_or_replaces_a_missing_value) {
  EXPECT_EQ(5, half(3).value_or(5));
  EXPECT_EQ(2, half(4).value_or(5));
}

}  // namespace
}  // namespace fovea
