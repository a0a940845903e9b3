#include "examples/demo/picture.hpp"

#include <algorithm>
#include <cmath>

#include "src/core/text.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::demo {

namespace {

using svg::Box;
using svg::Document;
using svg::Point;
using Anchor = svg::Document::Anchor;

constexpr double kMargin = 36;
constexpr double kGap = 20;
constexpr double kCard = 292;
constexpr double kCardTop = 112;
constexpr double kCardHeight = 614;
constexpr double kPadding = 20;
constexpr double kMap = kCard - 2 * kPadding - 14;
constexpr double kBars = 44;

// Brightness of each weight on a logarithmic scale from the weakest to the strongest hundredth;
// keys that the mask hides stay at zero.
std::vector<uint8_t> pixels(const AttentionMap& map) {
  std::vector<double> sorted;
  for (const double weight : map.weights) {
    if (weight > 0) sorted.push_back(std::log(weight));
  }
  if (sorted.empty()) return std::vector<uint8_t>(map.weights.size());
  std::sort(sorted.begin(), sorted.end());
  const double low = sorted[(sorted.size() - 1) / 100];
  const double high = std::max(sorted[(sorted.size() - 1) * 99 / 100], low + 1e-6);
  std::vector<uint8_t> out;
  for (const double weight : map.weights) {
    const double share =
        weight > 0 ? std::clamp((std::log(weight) - low) / (high - low), 0.0, 1.0) : 0;
    out.push_back(static_cast<uint8_t>(std::lround(255 * share)));
  }
  return out;
}

void draw_segments(Document& page, const AttentionMap& map, Box box) {
  double x = box.x;
  for (const Segment& segment : map.column_segments) {
    const double width =
        box.width * static_cast<double>(segment.length) / static_cast<double>(map.columns);
    page.text({x + width / 2, box.y - 7}, "tiny muted", segment.label, Anchor::middle);
    if (x > box.x) page.line({x, box.y - 4}, {x, box.y}, "edge");
    x += width;
  }
  double y = box.y;
  for (const Segment& segment : map.row_segments) {
    const double height =
        box.height * static_cast<double>(segment.length) / static_cast<double>(map.rows);
    page.vertical_text({box.x - 7, y + height / 2}, "tiny muted", segment.label);
    if (y > box.y) page.line({box.x - 4, y}, {box.x, y}, "edge");
    y += height;
  }
}

// The map, and under each column the share of all attention that its key receives.
void draw_map(Document& page, const AttentionMap& map, Box box) {
  const std::vector<uint8_t> values = pixels(map);
  page.image(
      box,
      svg::encode_png(map.columns, map.rows, values, svg::heat_palette(svg::HeatScale::on_light)),
      "light");
  page.image(
      box,
      svg::encode_png(map.columns, map.rows, values, svg::heat_palette(svg::HeatScale::on_dark)),
      "dark");
  page.rectangle(box, "edge");
  draw_segments(page, map, box);

  std::vector<double> received(static_cast<size_t>(map.columns));
  for (size_t i = 0; i < map.weights.size(); ++i) received[i % received.size()] += map.weights[i];
  const double most = *std::max_element(received.begin(), received.end());
  const double step = box.width / static_cast<double>(map.columns);
  const double base = box.y + box.height + 10 + kBars;
  for (size_t c = 0; c < received.size(); ++c) {
    const double x = box.x + step * static_cast<double>(c);
    if (map.hidden[c]) {
      page.rectangle({x, base - kBars, step, kBars}, "track");
      continue;
    }
    const double height = kBars * received[c] / most;
    page.rectangle({x, base - height, std::max(step - 0.6, 0.8), height}, "accent");
  }
  page.line({box.x, base}, {box.x + box.width, base}, "rule");
  page.text({box.x, base + 15}, "tiny muted", "received by each key");
  const auto hidden = std::count(map.hidden.begin(), map.hidden.end(), true);
  if (hidden > 0) {
    page.text({box.x + box.width, base + 15}, "tiny strong",
              text::concat(hidden, " keys masked out"), Anchor::end);
  }
}

// A logarithmic scale from 1e-8 to 1e-5 with the limit and where this result stands.
void draw_error(Document& page, const Panel& panel, Box box) {
  const auto place = [&](double value) {
    return box.x + box.width * std::clamp((std::log10(value) + 8) / 3, 0.0, 1.0);
  };
  page.text({box.x, box.y}, "small muted", "difference from the model's own output");
  page.text({box.x, box.y + 27}, panel.pass ? "figure good" : "figure bad",
            cli::scientific(panel.rel_l2));
  page.text({box.x + box.width, box.y + 27}, "tiny muted",
            "limit " + cli::scientific(panel.tolerance), Anchor::end);
  const double y = box.y + 42;
  page.rectangle({box.x, y - 3, box.width, 6}, "track", 3);
  const double mark = place(panel.rel_l2);
  page.rectangle({box.x, y - 3, mark - box.x, 6}, panel.pass ? "good" : "bad", 3);
  page.circle({mark, y}, 5, panel.pass ? "good" : "bad");
  const double limit = place(panel.tolerance);
  page.line({limit, y - 8}, {limit, y + 8}, "limit", 2);
}

// Every run as a dot on a scale that all panels share.
void draw_time(Document& page, const Panel& panel, double longest_ms, Box box) {
  page.text({box.x, box.y}, "small muted",
            text::concat("time of one call, ", panel.timing.runs_ms.size(), " runs"));
  page.text({box.x, box.y + 27}, "figure", cli::duration(panel.timing.median_ms));
  page.text({box.x + box.width, box.y + 27}, "tiny muted", cli::flop_rate(panel.tflops),
            Anchor::end);
  const double y = box.y + 42;
  page.rectangle({box.x, y - 3, box.width, 6}, "track", 3);
  for (const double run : panel.timing.runs_ms) {
    page.circle({box.x + box.width * std::min(run / longest_ms, 1.0), y}, 3.5, "second");
  }
  page.circle({box.x + box.width * std::min(panel.timing.median_ms / longest_ms, 1.0), y}, 5,
              "accent");
}

void draw_panel(Document& page, const Panel& panel, double longest_ms, double left) {
  page.rectangle({left, kCardTop, kCard, kCardHeight}, "card", 12);
  const double x = left + kPadding;
  const double width = kCard - 2 * kPadding;
  page.text({x, kCardTop + 32}, "heading", panel.title);
  page.text({x, kCardTop + 51}, "small muted", panel.subtitle);
  draw_map(page, panel.map, {x + 14, kCardTop + 82, kMap, kMap});
  double y = kCardTop + 82 + kMap + 10 + kBars + 46;
  draw_error(page, panel, {x, y, width, 0});
  y += 76;
  draw_time(page, panel, longest_ms, {x, y, width, 0});
  y += 66;
  page.line({x, y}, {x + width, y}, "rule");
  page.text({x, y + 22}, "body strong", panel.backend);
  page.text({x + width, y + 22}, "small mono muted", panel.path, Anchor::end);
  page.text({x, y + 40}, "tiny muted", panel.note);
}

void draw_legend(Document& page, double y, double right) {
  page.text({kMargin, y}, "small muted",
            "Each map: queries down, keys across, the most focused head, on a logarithmic scale.");
  const double width = 120;
  const Box box{right - width - 46, y - 10, width, 12};
  std::vector<uint8_t> ramp(256);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<uint8_t>(i);
  page.text({box.x - 8, y}, "small muted", "little", Anchor::end);
  page.image(box, svg::encode_png(256, 1, ramp, svg::heat_palette(svg::HeatScale::on_light)),
             "light");
  page.image(box, svg::encode_png(256, 1, ramp, svg::heat_palette(svg::HeatScale::on_dark)),
             "dark");
  page.rectangle(box, "edge");
  page.text({right, y}, "small muted", "much", Anchor::end);
}

}  // namespace

std::string draw(const std::vector<Panel>& panels, const std::string& subtitle) {
  const double count = static_cast<double>(panels.size());
  const double width = 2 * kMargin + count * kCard + (count - 1) * kGap;
  Document page(width, kCardTop + kCardHeight + 62, "Attention of captured model blocks",
                "For each attention role of the demo: a map of attention weights, the difference "
                "from the model's own output, the time of a call and the backend that ran it.");
  page.text({kMargin, 54}, "title", "Where diffusion transformers look");
  page.text({kMargin, 82}, "body muted", subtitle);
  double longest_ms = 0;
  for (const Panel& panel : panels) longest_ms = std::max(longest_ms, panel.timing.p90_ms);
  double left = kMargin;
  for (const Panel& panel : panels) {
    draw_panel(page, panel, longest_ms * 1.1, left);
    left += kCard + kGap;
  }
  draw_legend(page, kCardTop + kCardHeight + 34, width - kMargin);
  return page.finish();
}

}  // namespace fovea::demo
