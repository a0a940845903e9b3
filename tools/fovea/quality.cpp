#include "tools/fovea/quality.hpp"

#include <algorithm>
#include <cmath>

#include "src/core/element.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/tensors.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

namespace {

struct Answer {
  CallOutputs outputs;
  std::shared_ptr<const Receipt> receipt;
};

Result<Answer> answer(const LayerRun& run) {
  LayerRun again = run;
  again.repeat = 1;
  again.options.return_lse = true;
  again.options.out_dtype = kF32;
  again.tensors.out = again.tensors.lse = {};
  Answer out;
  FOVEA_TRY(out.outputs, allocate_outputs(again.tensors, again.options));
  out.outputs.place(again.tensors);
  FOVEA_TRY(const Attention layer, Attention::create(again.layer, again.config, again.executor));
  FOVEA_TRY(out.receipt, layer.run(again.tensors, again.options));
  return out;
}

}  // namespace

Result<QualityReport> measure_quality(const LayerRun& run) {
  FOVEA_TRY(const Answer sparse, answer(run));
  LayerRun plain = run;
  plain.config = {};
  plain.config.default_spec.emplace().backend = backend::FLASH_ATTN;
  plain.options.sparse_state = nullptr;
  plain.options.block_mask = nullptr;
  FOVEA_TRY(const Answer dense, answer(plain));
  QualityReport quality;
  quality.density = sparse.receipt->density.value_or(1);
  double sum = 0;
  int64_t rows = 0;
  const TensorView& kept = sparse.outputs.lse.view();
  const TensorView& all = dense.outputs.lse.view();
  for (int64_t at = 0; at < all.numel(); ++at) {
    const double whole = load_element(all.data, kF32, at);
    if (!std::isfinite(whole)) continue;
    const double recall = std::exp(load_element(kept.data, kF32, at) - whole);
    sum += recall;
    quality.recall_min = std::min(quality.recall_min, recall);
    ++rows;
  }
  quality.recall = rows == 0 ? 1 : sum / static_cast<double>(rows);
  const Comparison difference = compare(sparse.outputs.out.view(), dense.outputs.out.view());
  quality.rel_l1 = difference.rel_l1;
  quality.cosine = difference.cosine;
  return quality;
}

std::string quality_plot(const std::string& parameter, const std::vector<SweepPoint>& points,
                         const std::string& caption) {
  constexpr double kWidth = 900;
  constexpr double kLeft = 80;
  constexpr double kTop = 120;
  constexpr double kPlot = 360;
  constexpr double kRight = 190;
  svg::Document page(kWidth, kTop + kPlot + 100, "Quality over density",
                     "Curves over the share of blocks that is kept: attention mass inside them, "
                     "cosine and relative L1 error against dense attention.");
  page.text({kLeft, 50}, "title", "Quality over density");
  page.text({kLeft, 76}, "small muted", caption);
  const double length = kWidth - kLeft - kRight;
  const auto place = [&](double density, double value) {
    return svg::Point{kLeft + length * std::clamp(density, 0.0, 1.0),
                      kTop + kPlot * (1 - std::clamp(value, 0.0, 1.0))};
  };
  for (int tick = 0; tick <= 10; tick += 2) {
    const double at = tick / 10.0;
    page.line(place(0, at), place(1, at), "rule");
    page.line(place(at, 0), place(at, 1), "rule");
    page.text({kLeft - 10, place(0, at).y + 4}, "small muted", fixed(at, 1),
              svg::Document::Anchor::end);
    page.text({place(at, 0).x, kTop + kPlot + 20}, "small muted", fixed(at, 1),
              svg::Document::Anchor::middle);
  }
  page.text({kLeft + length / 2, kTop + kPlot + 44}, "small muted",
            "share of blocks that is kept; labels: " + parameter, svg::Document::Anchor::middle);
  std::vector<SweepPoint> sorted = points;
  std::sort(sorted.begin(), sorted.end(), [](const SweepPoint& a, const SweepPoint& b) {
    return a.quality.density < b.quality.density;
  });
  struct Curve {
    const char* label;
    const char* classes;
    double QualityReport::*member;
  };
  constexpr Curve kCurves[] = {{"mass kept", "accent", &QualityReport::recall},
                               {"cosine", "good", &QualityReport::cosine},
                               {"relative L1 error", "bad", &QualityReport::rel_l1}};
  double key = kTop + 8;
  for (const Curve& curve : kCurves) {
    for (size_t n = 0; n < sorted.size(); ++n) {
      const QualityReport& quality = sorted[n].quality;
      const svg::Point at = place(quality.density, quality.*curve.member);
      if (n > 0) {
        const QualityReport& before = sorted[n - 1].quality;
        page.line(place(before.density, before.*curve.member), at, curve.classes, 2);
      }
      page.circle(at, 4, curve.classes);
    }
    const double x = kWidth - kRight + 24;
    page.line({x, key}, {x + 24, key}, curve.classes, 2);
    page.text({x + 32, key + 4}, "small", curve.label);
    key += 24;
  }
  for (const SweepPoint& point : sorted) {
    page.text({place(point.quality.density, 0).x, kTop - 10}, "small muted", point.value,
              svg::Document::Anchor::middle);
  }
  return page.finish();
}

}  // namespace fovea::cli
