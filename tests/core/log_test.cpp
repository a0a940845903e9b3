#include "src/core/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace fovea {
namespace {

// Collects lines and restores the default sink and level.
class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) {
      lines_.push_back(std::string(name(level)) + " " + std::string(line));
    });
    set_log_level(LogLevel::warning);
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, lines_below_the_level_are_dropped) {
  log(LogLevel::info, "a");
  log(LogLevel::warning, "b");
  log(LogLevel::error, "c");
  EXPECT_EQ((std::vector<std::string>{"warning b", "error c"}), lines_);
}

TEST_F(Log, off_drops_everything) {
  set_log_level(LogLevel::off);
  log(LogLevel::error, "a");
  log(LogLevel::off, "b");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, the_sink_is_called_by_one_thread_at_a_time) {
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kLines; ++i) log(LogLevel::error, "x");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(static_cast<size_t>(kThreads * kLines), lines_.size());
}

TEST_F(Log, the_default_sink_writes_one_line_to_standard_error) {
  set_log_sink({});
  testing::internal::CaptureStderr();
  log(LogLevel::warning, "text");
  EXPECT_EQ("fovea warning: text\n", testing::internal::GetCapturedStderr());
}

TEST_F(Log, levels_read_back_in_any_case) {
  for (LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off})
    EXPECT_EQ(level, parse_log_level(name(level)));
  EXPECT_EQ(LogLevel::debug, parse_log_level("DEBUG"));
  EXPECT_EQ(std::nullopt, parse_log_level("loud"));
}

}  // namespace
}  // namespace fovea
