// A bench result under its roof: speed against FLOPs per byte.
#pragma once

#include <string>

#include "tools/fovea/reports.hpp"

namespace fovea::cli {

// FLOPs per byte of q, k, v and the output, each moved once.
double intensity(const Problem& problem) noexcept;

// One point for each case under the lower of the multiply-add peak and what memory delivers; the
// cases are numbered and listed below. Without a peak or bytes_per_second that line is missing.
std::string roofline_plot(const BenchReport& report);

}  // namespace fovea::cli
