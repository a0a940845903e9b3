#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "fovea/schedule.hpp"
#include "src/config/problems.hpp"
#include "src/config/rules.hpp"
#include "src/config/schedule_rules.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using config::Path;
using config::Problems;

// Far beyond any run; keeps a mistyped count from filling the memory.
constexpr int64_t kMaxCells = 1'000'000;

void check_query(const AttentionSchedule* schedule, const MatrixQuery& query, Problems& problems) {
  if (query.steps < 1) {
    problems.add(Path{"number of steps"}, ReasonCode::schedule,
                 text::concat("expected at least 1, found ", query.steps));
  }
  if (query.layers < 1) {
    problems.add(Path{"number of layers"}, ReasonCode::schedule,
                 text::concat("expected at least 1, found ", query.layers));
  }
  if (!problems.empty()) return;
  if (query.steps > kMaxCells / query.layers) {
    problems.add(Path{"steps x layers"}, ReasonCode::schedule,
                 text::concat(query.steps, " x ", query.layers, " is more than ", kMaxCells));
    return;
  }
  const bool needed = schedule != nullptr && !schedule->sigma.empty();
  if (!needed && query.sigmas.empty()) return;
  if (query.sigmas.size() != static_cast<size_t>(query.steps)) {
    problems.add(Path{"sigma"}, ReasonCode::schedule,
                 text::concat(needed ? "the schedule has sigma windows; " : "", "give the ",
                              query.steps, " sigmas of the run, found ", query.sigmas.size()));
    return;
  }
  for (size_t i = 0; i < query.sigmas.size(); ++i) {
    const double sigma = query.sigmas[i];
    if (sigma >= 0 && sigma <= 1) continue;
    problems.add(Path{"sigma"}[i], ReasonCode::schedule,
                 text::concat("expected a number in [0, 1], found ", text::format_number(sigma)));
  }
}

// A layer that the model does not have is a mistake, not a layer to skip.
void check_skip_layers(const ScheduleCell& cell, int64_t layers, Problems& problems) {
  if (cell.spec == nullptr || !cell.spec->block_sparse) return;
  for (const int64_t layer : cell.spec->block_sparse->skip_layers) {
    if (layer < layers) continue;
    problems.add(Path{cell.source}, ReasonCode::schedule,
                 text::concat("block_sparse.skip_layers names layer ", layer, ", but there are ",
                              layers, " layers"));
    return;
  }
}

// Why nothing is sparse, and what to change, as one reason.
Reason idle_reason(const ScheduleCell& cell, const MatrixQuery& query) {
  const bool keeps_all = cell.dense == DenseCause::not_sparse;
  return {ReasonCode::schedule, "a schedule that runs sparse in",
          text::concat("0 of ", query.steps, " steps x ", query.layers, " layers"), "at least 1",
          keeps_all ? "raise sparsity, or name a dense backend"
                    : "lower its dense steps or layers, or name a dense backend"};
}

// The same as a sentence.
std::string never_sparse(const ScheduleCell& cell, const MatrixQuery& query) {
  if (cell.dense == DenseCause::not_sparse) {
    return text::concat(name(cell.spec->backend),
                        " with sparsity 0 leaves no block out; raise sparsity, or name a dense "
                        "backend");
  }
  return text::concat(name(cell.spec->backend), " would run dense in every one of ", query.steps,
                      " steps and ", query.layers,
                      " layers; lower its dense steps or layers, or name a dense backend");
}

}  // namespace

Result<ScheduleMatrix> ScheduleMatrix::build(const AttentionConfig& base,
                                             const AttentionSchedule* schedule,
                                             const MatrixQuery& query) {
  Problems problems;
  check_query(schedule, query, problems);
  if (!problems.empty()) return problems.error("schedule");
  if (schedule != nullptr) FOVEA_CHECK(validate(*schedule, query.steps, query.layers));

  ScheduleMatrix matrix;
  matrix.steps_ = query.steps;
  matrix.layers_ = query.layers;
  matrix.grid_.resize(static_cast<size_t>(query.steps * query.layers));
  // Cells differ by profile and cause only, because a profile fixes the spec of the role.
  std::map<std::pair<std::string_view, DenseCause>, uint32_t> index;
  for (int64_t step = 0; step < query.steps; ++step) {
    SchedulePoint point{step, 0, query.steps, {}};
    if (!query.sigmas.empty()) point.sigma = query.sigmas[static_cast<size_t>(step)];
    for (point.layer = 0; point.layer < query.layers; ++point.layer) {
      ScheduleCell cell = schedule_cell(base, schedule, query.role, query.category, point);
      const std::pair key(cell.profile, cell.dense);
      auto it = index.find(key);
      if (it == index.end()) {
        it = index.emplace(key, static_cast<uint32_t>(matrix.cells_.size())).first;
        matrix.cells_.push_back(std::make_shared<const ScheduleCell>(std::move(cell)));
      }
      matrix.grid_[static_cast<size_t>(step * query.layers + point.layer)] = it->second;
    }
  }

  std::set<std::string_view> judged;
  for (const auto& cell : matrix.cells_) {
    const auto same = [&](const AttentionSpec* spec) {
      return spec == cell->spec ||
             (spec != nullptr && cell->spec != nullptr && *spec == *cell->spec);
    };
    if (std::none_of(matrix.specs_.begin(), matrix.specs_.end(), same)) {
      matrix.specs_.push_back(cell->spec);
    }
    if (!judged.insert(cell->profile).second) continue;
    check_skip_layers(*cell, query.layers, problems);
    if (cell->spec == nullptr || !config::is_sparse(cell->spec->backend)) continue;
    const bool sparse = std::any_of(
        matrix.cells_.begin(), matrix.cells_.end(),
        [&](const auto& other) { return other->profile == cell->profile && other->sparse(); });
    if (sparse) continue;
    matrix.idle_.push_back({cell->spec, idle_reason(*cell, query)});
    if (cell->spec->strictness == Strictness::require) {
      if (query.keep_idle) continue;
      problems.add(Path{cell->source}, ReasonCode::schedule, never_sparse(*cell, query));
    } else {
      matrix.warnings_.push_back(text::concat(cell->source, ": ", never_sparse(*cell, query)));
    }
  }
  if (!problems.empty()) return problems.error("schedule");
  return matrix;
}

int64_t ScheduleMatrix::sparse_cells() const noexcept {
  return std::count_if(grid_.begin(), grid_.end(),
                       [&](uint32_t index) { return cells_[index]->sparse(); });
}

std::vector<MatrixArea> ScheduleMatrix::areas() const {
  std::vector<MatrixArea> out;
  const auto row = [&](int64_t step) { return grid_.begin() + step * layers_; };
  for (int64_t step = 0; step < steps_;) {
    int64_t last = step;
    while (last + 1 < steps_ && std::equal(row(step), row(step) + layers_, row(last + 1))) ++last;
    for (int64_t layer = 0; layer < layers_;) {
      int64_t end = layer;
      while (end + 1 < layers_ && row(step)[end + 1] == row(step)[layer]) ++end;
      out.push_back({step, last, layer, end, &at(step, layer)});
      layer = end + 1;
    }
    step = last + 1;
  }
  return out;
}

}  // namespace fovea
