#include "fovea/schedule_density.hpp"

#include <cmath>
#include <map>

#include "src/core/text.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea {
namespace {

// Rounded to so many places.
std::string decimals(double value, double scale) {
  return text::format_number(std::round(value * scale) / scale);
}

}  // namespace

std::optional<double> spec_density(const AttentionSpec* spec, const Problem& problem,
                                   const VideoShape& video) {
  if (spec == nullptr || dense_cause(spec, INT32_MAX, INT32_MAX) == DenseCause::not_sparse)
    return 1.0;
  if (spec->backend == backend::RADIAL_ATTN || spec->backend == backend::LOCAL_SPARSE_ATTN) {
    if (video.frames < 1) return std::nullopt;
    Problem asked = problem;
    asked.sparse = sparse::video_pattern(*spec, {video.frames, video.tokens_per_frame});
    const auto pattern = sparse::read_pattern(asked);
    if (!pattern) return std::nullopt;
    const auto mask = sparse::planned_mask(*pattern);
    return mask ? std::optional((*mask)->density()) : std::nullopt;
  }
  const BlockSparseOptions options = spec->block_sparse.value_or(BlockSparseOptions{});
  if (options.selection != "block_topk") return std::nullopt;
  // Of keys without number: the share that is asked for, before it becomes whole blocks.
  if (problem.seq_kv < 1) return 1 - options.sparsity;
  const BlockTopk topk{options.sparsity, static_cast<int32_t>(options.block_size),
                       options.protected_prefix};
  const int64_t columns = (problem.seq_kv + options.block_size - 1) / options.block_size;
  return static_cast<double>(topk_count(topk, problem.seq_kv)) / static_cast<double>(columns);
}

std::string ScheduleDensity::text() const {
  std::string out = text::concat("sparse on ", sparse_cells, " of ", cells, " steps x layers");
  if (!mean) return out;
  return out + text::concat(", ", decimals(*mean, 1e4), " of the blocks: up to ",
                            decimals(1 / *mean, 1e2), " times faster");
}

ScheduleDensity schedule_density(const ScheduleMatrix& matrix, const Problem& problem,
                                 const VideoShape& video) {
  ScheduleDensity out;
  std::map<const AttentionSpec*, std::optional<double>> known;
  double sum = 0;
  bool all_known = true;
  for (const MatrixArea& area : matrix.areas()) {
    const int64_t cells =
        (area.last_step - area.first_step + 1) * (area.last_layer - area.first_layer + 1);
    out.cells += cells;
    std::optional<double> density = 1.0;
    if (area.cell->sparse()) {
      out.sparse_cells += cells;
      const auto [entry, inserted] = known.try_emplace(area.cell->spec);
      if (inserted) entry->second = spec_density(area.cell->spec, problem, video);
      density = entry->second;
    }
    all_known = all_known && density.has_value();
    sum += density.value_or(0) * static_cast<double>(cells);
    out.areas.push_back({area, density});
  }
  if (all_known && out.cells > 0 && sum > 0) out.mean = sum / static_cast<double>(out.cells);
  return out;
}

}  // namespace fovea
