#include "tools/fovea/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/cuda_device/stream.hpp"

namespace fovea::cli {

namespace {

// Linear between neighbours; `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

}  // namespace

Timing summarise(std::vector<double> runs_ms) {
  Timing timing;
  if (runs_ms.empty()) return timing;
  std::vector<double> sorted = runs_ms;
  std::sort(sorted.begin(), sorted.end());
  timing.median_ms = quantile(sorted, 0.5);
  timing.p10_ms = quantile(sorted, 0.1);
  timing.p90_ms = quantile(sorted, 0.9);
  timing.min_ms = sorted.front();
  timing.max_ms = sorted.back();
  timing.runs_ms = std::move(runs_ms);
  return timing;
}

Result<Timing> measure(int64_t repeat, double warm_up_ms, const std::function<Status()>& run) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const Clock::time_point begin = Clock::now();
  do {
    FOVEA_CHECK(run());
  } while (since(begin) < warm_up_ms);
  std::vector<double> runs_ms;
  for (int64_t i = 0; i < repeat; ++i) {
    const Clock::time_point start = Clock::now();
    FOVEA_CHECK(run());
    runs_ms.push_back(since(start));
  }
  return summarise(std::move(runs_ms));
}

Result<Timing> measure_on_stream(int64_t repeat, Device device, Stream stream,
                                 const std::function<Status()>& run) {
  FOVEA_CHECK(run());
  std::vector<cuda::Timer> timers;
  for (int64_t i = 0; i < repeat; ++i) {
    FOVEA_TRY(timers.emplace_back(), cuda::Timer::create(device));
  }
  for (const cuda::Timer& timer : timers) {
    FOVEA_CHECK(timer.start(stream));
    FOVEA_CHECK(run());
    FOVEA_CHECK(timer.stop(stream));
  }
  FOVEA_CHECK(cuda::synchronize(stream));
  std::vector<double> runs_ms;
  for (const cuda::Timer& timer : timers) {
    FOVEA_TRY(runs_ms.emplace_back(), timer.milliseconds());
  }
  return summarise(std::move(runs_ms));
}

}  // namespace fovea::cli
