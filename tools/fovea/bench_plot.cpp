#include "tools/fovea/bench_plot.hpp"

#include <algorithm>
#include <cmath>

#include "src/core/text.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

namespace {

using svg::Document;
using Anchor = Document::Anchor;

constexpr double kWidth = 900;
constexpr double kMargin = 36;
constexpr double kTop = 104;
constexpr double kLabels = 190;  // names of backends and baselines
constexpr double kFigures = 120;
constexpr double kBar = 18;
constexpr double kStep = 26;
constexpr double kHeader = 30;
constexpr double kBetween = 22;

double group_height(const BenchCase& row) {
  return kHeader + kStep * static_cast<double>(1 + row.baselines.size());
}

// The speed of the case had it taken this long.
double rate(const BenchCase& row, double milliseconds) {
  return milliseconds > 0 ? row.tflops * row.timing.median_ms / milliseconds : 0;
}

// 1, 2 or 5 times a power of ten, for about five grid lines up to `most`.
double grid_step(double most) {
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string bench_plot(const BenchReport& report) {
  double height = kTop + 56;
  double most = 0;
  for (const BenchCase& row : report.cases) {
    height += group_height(row) + kBetween;
    most = std::max(most, rate(row, row.timing.p10_ms));
    for (const BaselineReport& baseline : row.baselines) {
      most = std::max(most, rate(row, baseline.median_ms));
    }
  }
  if (!(most > 0)) most = 1;
  Document page(kWidth, height, "Attention speed",
                "Bars of floating-point operations per second for each problem: the backend that "
                "was measured and its baselines in the same run.");
  page.text({kMargin, 50}, "title", "Attention speed");
  page.text({kMargin, 76}, "body muted",
            text::concat("Median of ",
                         report.cases.empty() ? 0 : report.cases.front().timing.runs_ms.size(),
                         " runs on ", report.device, report.isa.empty() ? "" : " " + report.isa,
                         ", ", report.threads, report.threads == 1 ? " thread" : " threads",
                         "; lines reach from the 10th to the 90th percentile"));
  const double left = kMargin + kLabels;
  const double length = kWidth - kMargin - kFigures - left;
  const auto place = [&](double tflops) { return left + length * std::min(tflops / most, 1.0); };
  const double step = grid_step(most);
  double y = kTop;
  for (const BenchCase& row : report.cases) {
    page.text({kMargin, y + 18}, "small mono strong", to_string(row.problem));
    const double bottom = y + group_height(row);
    y += kHeader;
    for (double value = 0; value <= most * 1.0001; value += step) {
      page.line({place(value), y - 4}, {place(value), bottom}, "rule");
    }
    const auto bar = [&](const std::string& label, double tflops, double end, const char* classes,
                         const std::string& figure) {
      page.text({left - 10, y + 14}, "small", label, Anchor::end);
      page.rectangle({left, y, std::max(place(tflops) - left, 1.5), kBar}, classes, 3);
      page.text({place(end) + 10, y + 14}, "small strong", figure);
    };
    const double fastest = rate(row, row.timing.p10_ms);
    bar(name(row.backend), row.tflops, fastest, "accent", flop_rate(row.tflops));
    page.line({place(rate(row, row.timing.p90_ms)), y + kBar / 2}, {place(fastest), y + kBar / 2},
              "edge", 2);
    y += kStep;
    for (const BaselineReport& baseline : row.baselines) {
      const double tflops = rate(row, baseline.median_ms);
      const std::string factor = baseline.ratio >= 1
                                     ? fixed(baseline.ratio, 1) + " times slower"
                                     : fixed(1 / baseline.ratio, 1) + " times faster";
      bar(baseline.name, tflops, tflops, "second", text::concat(flop_rate(tflops), ", ", factor));
      y += kStep;
    }
    y += kBetween;
  }
  for (double value = 0; value <= most * 1.0001; value += step) {
    page.text({place(value), y + 4}, "small muted", value == 0 ? "0" : flop_rate(value),
              Anchor::middle);
  }
  return page.finish();
}

}  // namespace fovea::cli
