#include "tools/fovea/measure.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace fovea::cli {
namespace {

TEST(Summarise, TakesQuantilesOfUnsortedRuns) {
  const Timing timing = summarise({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(timing.median_ms, 3);
  EXPECT_DOUBLE_EQ(timing.min_ms, 1);
  EXPECT_DOUBLE_EQ(timing.max_ms, 5);
  EXPECT_DOUBLE_EQ(timing.p10_ms, 1.4);
  EXPECT_DOUBLE_EQ(timing.p90_ms, 4.6);
  EXPECT_EQ(timing.runs_ms, (std::vector<double>{5, 1, 4, 2, 3}));
}

TEST(Summarise, OneRunIsEveryFigure) {
  const Timing timing = summarise({7});
  EXPECT_DOUBLE_EQ(timing.median_ms, 7);
  EXPECT_DOUBLE_EQ(timing.p10_ms, 7);
  EXPECT_DOUBLE_EQ(timing.p90_ms, 7);
}

TEST(Summarise, NoRunsAreZero) { EXPECT_DOUBLE_EQ(summarise({}).median_ms, 0); }

TEST(Measure, WarmsUpOnceThenRepeats) {
  int calls = 0;
  const Result<Timing> timing = measure(4, 0, [&]() -> Status {
    ++calls;
    return {};
  });
  ASSERT_TRUE(timing);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(timing->runs_ms.size(), 4u);
}

TEST(Measure, WarmsUpForTheTimeAsked) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Clock::time_point first_timed;
  int calls = 0;
  const Result<Timing> timing = measure(1, 20, [&]() -> Status {
    ++calls;
    first_timed = Clock::now();
    return {};
  });
  ASSERT_TRUE(timing);
  EXPECT_GE(first_timed - start, std::chrono::milliseconds(20));
  EXPECT_GE(calls, 2);
  EXPECT_EQ(timing->runs_ms.size(), 1u);
}

TEST(Measure, StopsAtTheFirstError) {
  int calls = 0;
  const Result<Timing> timing = measure(4, 0, [&]() -> Status {
    if (++calls == 3) return Error{ErrorCode::unsupported, "no", {}};
    return {};
  });
  ASSERT_FALSE(timing);
  EXPECT_EQ(timing.error().code, ErrorCode::unsupported);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace fovea::cli
