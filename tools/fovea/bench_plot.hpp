// A bench result as a picture.
#pragma once

#include <string>

#include "tools/fovea/reports.hpp"

namespace fovea::cli {

// Bars of speed, one group for each case: the backend and its baselines.
std::string bench_plot(const BenchReport& report);

}  // namespace fovea::cli
