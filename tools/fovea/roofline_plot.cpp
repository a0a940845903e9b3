#include "tools/fovea/roofline_plot.hpp"

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
constexpr double kLeft = 130;
constexpr double kTop = 110;
constexpr double kHeight = 380;
constexpr double kListLine = 20;

// A logarithmic axis that reaches from the power of ten below `low` to the one above `high`.
class LogAxis {
 public:
  LogAxis(double low, double high, double begin, double end)
      : low_(std::floor(std::log10(low))), begin_(begin), end_(end) {
    high_ = std::max(std::ceil(std::log10(high)), low_ + 1);
  }
  double place(double value) const {
    return begin_ + (end_ - begin_) * (std::log10(value) - low_) / (high_ - low_);
  }
  int first() const { return static_cast<int>(low_); }
  int last() const { return static_cast<int>(high_); }
  double low() const { return std::pow(10, low_); }
  double high() const { return std::pow(10, high_); }

 private:
  double low_, high_ = 0, begin_, end_;
};

}  // namespace

double intensity(const Problem& p) noexcept {
  const auto bytes = [](DType dtype) { return static_cast<double>(dtype.bits) / 8; };
  const double q = static_cast<double>(p.batch * p.seq_q * p.heads_q);
  const double kv = static_cast<double>(p.batch * p.seq_kv * p.heads_kv);
  const double dims = static_cast<double>(p.head_dim + p.dim_v);
  const double moved = (q * static_cast<double>(p.head_dim) + kv * dims) * bytes(p.dtype) +
                       q * static_cast<double>(p.dim_v) * bytes(p.out_dtype);
  return moved > 0 ? flop_count(p) / moved : 0;
}

std::string roofline_plot(const BenchReport& report) {
  double peak = 0, most = 0, least = 1e30, leftmost = 1, rightmost = 1;
  for (const BenchCase& row : report.cases) {
    peak = std::max(peak, row.peak_tflops.value_or(0));
    const double x = intensity(row.problem);
    if (!(x > 0) || !(row.tflops > 0)) continue;
    most = std::max(most, row.tflops);
    least = std::min(least, row.tflops);
    leftmost = std::min(leftmost, x);
    rightmost = std::max(rightmost, x);
  }
  if (!(most > 0)) most = least = 1;
  const LogAxis x(leftmost, rightmost, kLeft, kWidth - kMargin);
  const LogAxis y(least, std::max(most, peak), kTop + kHeight, kTop);
  Document page(kWidth, kTop + kHeight + 90 + kListLine * static_cast<double>(report.cases.size()),
                "Attention under the roofline",
                "Speed of each problem against its floating-point operations per byte, below the "
                "multiply-add peak and the speed of memory.");
  page.text({kMargin, 50}, "title", "Attention under the roofline");
  page.text(
      {kMargin, 76}, "body muted",
      text::concat(report.device, report.isa.empty() ? "" : " " + report.isa, ", ", report.threads,
                   report.threads == 1 ? " thread" : " threads", "; whole calls, medians"));
  for (int power = x.first(); power <= x.last(); ++power) {
    const double value = std::pow(10, power);
    page.line({x.place(value), kTop}, {x.place(value), kTop + kHeight}, "rule");
    page.text({x.place(value), kTop + kHeight + 20}, "small muted", text::format_number(value),
              Anchor::middle);
  }
  for (int power = y.first(); power <= y.last(); ++power) {
    const double value = std::pow(10, power);
    page.line({kLeft, y.place(value)}, {kWidth - kMargin, y.place(value)}, "rule");
    page.text({kLeft - 10, y.place(value) + 4}, "small muted", flop_rate(value), Anchor::end);
  }
  page.text({(kLeft + kWidth - kMargin) / 2, kTop + kHeight + 44}, "small",
            "FLOPs per byte of q, k, v and output", Anchor::middle);

  const double slope = report.bytes_per_second.value_or(0) / 1e12;  // per FLOP per byte
  if (slope > 0) {
    const double from = std::max(x.low(), y.low() / slope);
    const double to = std::min(x.high(), (peak > 0 ? peak : y.high()) / slope);
    if (from < to) {
      page.line({x.place(from), y.place(from * slope)}, {x.place(to), y.place(to * slope)}, "edge",
                2);
    }
  }
  if (peak > 0) {
    const double from = slope > 0 ? std::clamp(peak / slope, x.low(), x.high()) : x.low();
    page.line({x.place(from), y.place(peak)}, {x.place(x.high()), y.place(peak)}, "edge", 2);
    page.text({x.place(x.high()), y.place(peak) - 8}, "small strong",
              "multiply-add peak " + flop_rate(peak), Anchor::end);
  }
  double line = kTop + kHeight + 80;
  for (size_t i = 0; i < report.cases.size(); ++i) {
    const BenchCase& row = report.cases[i];
    const std::string number = std::to_string(i + 1);
    const double at = intensity(row.problem);
    if (at > 0 && row.tflops > 0) {
      page.circle({x.place(at), y.place(row.tflops)}, 4, "accent");
      page.text({x.place(at), y.place(row.tflops) + 18}, "small", number, Anchor::middle);
    }
    page.text({kMargin, line}, "small strong", number);
    page.text({kMargin + 34, line}, "small mono", to_string(row.problem));
    page.text({kWidth - kMargin, line}, "small",
              text::concat(flop_rate(row.tflops),
                           row.peak_fraction
                               ? text::concat(", ", fixed(100 * *row.peak_fraction, 1), " %")
                               : std::string()),
              Anchor::end);
    line += kListLine;
  }
  return page.finish();
}

}  // namespace fovea::cli
