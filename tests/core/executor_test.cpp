#include "fovea/executor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "fovea/log.hpp"

namespace fovea {
namespace {

// Every index runs once, workers are in range and never run two tasks at once.
void check_contract(Executor& executor, int64_t count) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
  std::vector<std::atomic<int>> busy(static_cast<size_t>(executor.workers()));
  std::atomic<int> faults = 0;
  const auto task = [&](int64_t index, int worker) {
    if (worker < 0 || worker >= executor.workers()) {
      ++faults;
      return;
    }
    if (busy[static_cast<size_t>(worker)]++ != 0) ++faults;
    ++runs[static_cast<size_t>(index)];
    --busy[static_cast<size_t>(worker)];
  };
  executor.parallel_for(count, task);
  EXPECT_EQ(0, faults);
  for (const auto& n : runs) EXPECT_EQ(1, n);
}

TEST(Executor, serial_runs_every_index_once) {
  EXPECT_EQ(1, serial_executor().workers());
  for (int64_t count : {0, 1, 100}) check_contract(serial_executor(), count);
}

TEST(Executor, openmp_runs_every_index_once) {
  for (int threads : {1, 2, 5}) {
    const auto executor = make_openmp_executor(threads);
    EXPECT_EQ(threads, executor->workers());
    for (int64_t count : {0, 1, 3, 1000}) check_contract(*executor, count);
  }
}

TEST(Executor, openmp_tasks_really_run_at_the_same_time) {
  const auto executor = make_openmp_executor(2);
  std::atomic<int> arrived = 0;
  std::atomic<bool> met = false;
  executor->parallel_for(2, [&](int64_t, int) {
    ++arrived;
    for (int64_t spins = 0; arrived < 2 && spins < 200'000'000; ++spins) std::this_thread::yield();
    if (arrived == 2) met = true;
  });
  EXPECT_TRUE(met);
}

TEST(Executor, may_be_used_from_several_threads) {
  const auto executor = make_openmp_executor(2);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back([&] { check_contract(*executor, 200); });
  for (std::thread& caller : callers) caller.join();
}

TEST(Executor, the_environment_sets_the_thread_count) {
  setenv("FOVEA_NUM_THREADS", " 3 ", 1);
  EXPECT_EQ(3, make_openmp_executor()->workers());
  EXPECT_EQ(2, make_openmp_executor(2)->workers());
  unsetenv("FOVEA_NUM_THREADS");
  EXPECT_GE(make_openmp_executor()->workers(), 1);
}

TEST(Executor, a_bad_thread_count_is_warned_of) {
  for (const char* bad : {"0", "-1", "many", "1.5", "100000"}) {
    std::string line;
    set_log_sink([&](LogLevel, std::string_view text) { line = text; });
    setenv("FOVEA_NUM_THREADS", bad, 1);
    EXPECT_GE(make_openmp_executor()->workers(), 1);
    unsetenv("FOVEA_NUM_THREADS");
    set_log_sink({});
    EXPECT_NE(std::string::npos, line.find("accepted: 1..1024")) << bad;
  }
}

}  // namespace
}  // namespace fovea
