// Explaining a run of known length: the decision for every rectangle of steps and layers.
#include <algorithm>
#include <map>
#include <utility>

#include "fovea/explain.hpp"
#include "fovea/schedule_density.hpp"
#include "src/core/log.hpp"
#include "src/core/text.hpp"
#include "src/select/explain_entry.hpp"

namespace fovea {
namespace {

// "0-39", or "7" for one.
std::string range(int64_t first, int64_t last) {
  return first == last ? std::to_string(first) : text::concat(first, '-', last);
}

// Layers are told apart by the schedule or by the spec of the role.
bool tells_layers_apart(const AttentionConfig& config, const AttentionSchedule* schedule) {
  const auto by_spec = [](const AttentionSpec& spec) {
    return (spec.radial && spec.radial->dense_layers > 0) ||
           (spec.local_sparse && spec.local_sparse->dense_layers > 0) ||
           (spec.block_sparse && !spec.block_sparse->skip_layers.empty());
  };
  const auto by_config = [&](const AttentionConfig& c) {
    return (c.default_spec && by_spec(*c.default_spec)) ||
           std::any_of(c.per_role.begin(), c.per_role.end(),
                       [&](const auto& entry) { return by_spec(entry.second); });
  };
  if (by_config(config)) return true;
  if (schedule == nullptr) return false;
  return !schedule->layers.empty() || schedule->dense_first_layers > 0 ||
         std::any_of(schedule->profiles.begin(), schedule->profiles.end(),
                     [&](const auto& profile) { return by_config(profile.second); });
}

// The entries of one role.
class RoleExplainer {
 public:
  RoleExplainer(const AttentionConfig& base, const AttentionSchedule* schedule,
                std::shared_ptr<const Platform> platform, const ExplainQuery& query,
                const ExecutionContext& context)
      : base_(base),
        schedule_(schedule),
        platform_(std::move(platform)),
        query_(query),
        context_(context) {}

  Status add(const RunLength& length, Explanation& out) {
    MatrixQuery wanted{
        query_.role, query_.category, length.steps, length.layers.value_or(1), length.sigmas, true};
    FOVEA_TRY(const ScheduleMatrix matrix, ScheduleMatrix::build(base_, schedule_, wanted));
    for (const std::string& warning : matrix.warnings()) {
      const bool known =
          std::find(out.warnings.begin(), out.warnings.end(), warning) != out.warnings.end();
      if (known) continue;
      log_once(LogLevel::warning, warning);
      out.warnings.push_back(warning);
    }
    SparseShare share{0, matrix.steps() * matrix.layers()};
    const bool any_sparse = matrix.sparse_cells() > 0 || !matrix.idle().empty();
    const size_t first = out.entries.size();
    for (const MatrixArea& area : split_by_gate(matrix.areas(), length.sigmas)) {
      std::optional<double> timestep;
      if (!length.sigmas.empty()) timestep = length.sigmas[static_cast<size_t>(area.first_step)];
      ExplainEntry entry = explain(*area.cell, timestep);
      entry.steps = range(area.first_step, area.last_step);
      entry.layers = length.layers ? range(area.first_layer, area.last_layer) : query_.layers;
      if (runs_sparse(*area.cell, entry))
        share.on +=
            (area.last_step - area.first_step + 1) * (area.last_layer - area.first_layer + 1);
      refuse_idle(matrix, *area.cell, entry);
      out.refused = out.refused || explain_entry::refused(entry);
      out.entries.push_back(std::move(entry));
    }
    for (size_t i = first; any_sparse && i < out.entries.size(); ++i) out.entries[i].sparse = share;
    return {};
  }

 private:
  static bool scheduled_dense(const ScheduleCell& cell) {
    return !cell.sparse() && cell.dense != DenseCause::not_sparse;
  }

  // The sparse backend of the cell itself runs, not one that stands in for it.
  static bool runs_sparse(const ScheduleCell& cell, const ExplainEntry& entry) {
    return cell.sparse() && cell.spec != nullptr && entry.report.backend == cell.spec->backend &&
           entry.report.support != SupportStatus::unsupported;
  }

  // Cuts areas where the timestep passes the gate of their skip_softmax.
  static std::vector<MatrixArea> split_by_gate(const std::vector<MatrixArea>& areas,
                                               const std::vector<double>& sigmas) {
    if (sigmas.empty()) return areas;
    std::vector<MatrixArea> out;
    for (const MatrixArea& area : areas) {
      const AttentionSpec* spec = area.cell->spec;
      const bool skips = spec != nullptr && spec->skip_softmax.has_value();
      const auto gated = [&](int64_t step) {
        return decide_skip(*spec->skip_softmax, 0, sigmas[static_cast<size_t>(step)]).state ==
               SkipState::gated;
      };
      MatrixArea part = area;
      for (int64_t step = area.first_step + 1; skips && step <= area.last_step; ++step) {
        if (gated(step) == gated(part.first_step)) continue;
        part.last_step = step - 1;
        out.push_back(part);
        part.first_step = step;
        part.last_step = area.last_step;
      }
      out.push_back(part);
    }
    return out;
  }

  ExplainEntry explain(const ScheduleCell& cell, std::optional<double> timestep) {
    ExecutionContext context = context_;
    context.timestep = timestep;
    if (scheduled_dense(cell)) context.scheduled_dense = dense_backend(*cell.spec);
    ExplainEntry entry = explain_entry::make(selector(cell.profile), query_, context);
    if (scheduled_dense(cell)) {
      entry.dense = cell.dense;
      entry.report.density = 1.0;
    } else if (runs_sparse(cell, entry) && !entry.report.density) {
      Problem no_sizes;
      no_sizes.seq_kv = 0;
      entry.report.density = spec_density(cell.spec, query_.problem.value_or(no_sizes),
                                          query_.video.value_or(VideoShape{}));
    }
    entry.profile = cell.profile;
    entry.source = cell.source;
    return entry;
  }

  static void refuse_idle(const ScheduleMatrix& matrix, const ScheduleCell& cell,
                          ExplainEntry& entry) {
    if (cell.spec == nullptr || cell.spec->strictness != Strictness::require) return;
    for (const IdleSpec& idle : matrix.idle()) {
      if (idle.spec != cell.spec) continue;
      entry.report.backend = cell.spec->backend;
      entry.report.support = SupportStatus::unsupported;
      entry.report.path.clear();
      entry.report.instance.clear();
      entry.report.built = false;
      entry.report.workspace_bytes = 0;
      entry.report.reasons = {idle.reason};
      entry.assumed.clear();
      entry.trail = {{cell.spec->backend, TrailVerdict::rejected, {idle.reason}}};
      return;
    }
  }

  const Selector& selector(std::string_view profile) {
    auto& made = selectors_[profile];
    if (made == nullptr) {
      const AttentionConfig& config =
          profile.empty() ? base_ : schedule_->profiles.at(std::string(profile));
      made = std::make_unique<Selector>(platform_, config);
    }
    return *made;
  }

  const AttentionConfig& base_;
  const AttentionSchedule* schedule_;
  std::shared_ptr<const Platform> platform_;
  const ExplainQuery& query_;
  const ExecutionContext& context_;
  std::map<std::string_view, std::unique_ptr<Selector>> selectors_;  // by profile
};

}  // namespace

Result<Explanation> explain_schedule(const AttentionConfig& config,
                                     const AttentionSchedule* schedule,
                                     std::shared_ptr<const Platform> platform,
                                     const std::vector<ExplainQuery>& queries,
                                     const std::vector<RunLength>& lengths,
                                     const ExecutionContext& context) {
  if (queries.size() != lengths.size())
    return Error{ErrorCode::invalid_argument,
                 text::concat("explain_schedule: ", queries.size(), " queries, but ",
                              lengths.size(), " run lengths"),
                 {}};
  Explanation out;
  out.facts = platform->facts();
  for (size_t i = 0; i < queries.size(); ++i) {
    if (!lengths[i].layers && tells_layers_apart(config, schedule))
      return Error{ErrorCode::invalid_config,
                   "the configuration tells layers apart; state how many layers there are",
                   {}};
    RoleExplainer role(config, schedule, platform, queries[i], context);
    FOVEA_CHECK(role.add(lengths[i], out));
  }
  return out;
}

}  // namespace fovea
