// Timing of repeated runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"

namespace fovea::cli {

struct Timing {
  double median_ms = 0;
  double p10_ms = 0;
  double p90_ms = 0;
  double min_ms = 0;
  double max_ms = 0;
  std::vector<double> runs_ms;  // in order
};

// Figures of the given run times; all zero without any.
Timing summarise(std::vector<double> runs_ms);

// Runs for at least `warm_up_ms` and once, then `repeat` times under the clock. Stops at the first
// error.
Result<Timing> measure(int64_t repeat, double warm_up_ms, const std::function<Status()>& run);

// The same for work that `run` puts on a stream: each run between two events, all enqueued before
// the first is waited for, so the device is never idle.
Result<Timing> measure_on_stream(int64_t repeat, Device device, Stream stream,
                                 const std::function<Status()>& run);

}  // namespace fovea::cli
