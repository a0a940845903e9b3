#include "fovea/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/config/fields.hpp"
#include "src/config/rules.hpp"
#include "src/config/schedule_rules.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

constexpr std::string_view kOrigin = "schedule";

std::vector<std::string_view> profile_names(const AttentionSchedule& schedule) {
  std::vector<std::string_view> names;
  for (const auto& [name, config] : schedule.profiles) names.push_back(name);
  return names;
}

void check_profile(const AttentionSchedule& schedule, const std::string& profile, const Path& path,
                   Problems& problems) {
  if (schedule.profiles.contains(profile)) return;
  const auto names = profile_names(schedule);
  problems.add(path / "profile", ReasonCode::schedule,
               text::concat("there is no profile ", text::quote(profile),
                            "; known here: ", names.empty() ? "none" : text::join(names),
                            text::suggestion(profile, names)),
               profile, text::join(names));
}

void check_ranges(const AttentionSchedule& schedule, const std::vector<StepRange>& ranges,
                  std::string_view list, Problems& problems) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const StepRange& range = ranges[i];
    const Path path = Path{std::string(list)}[i];
    check_profile(schedule, range.profile, path, problems);
    if (range.start < 0) {
      problems.add(path / "start", ReasonCode::schedule,
                   text::concat("expected an integer of at least 0, found ", range.start));
    }
    if (range.end && *range.end <= range.start) {
      problems.add(path / "end", ReasonCode::schedule,
                   text::concat("the range [", range.start, ", ", *range.end,
                                ") is empty; end must be above start"));
    }
    if (i == 0) continue;
    const StepRange& before = ranges[i - 1];
    if (!before.end) {
      problems.add(path, ReasonCode::schedule,
                   "follows a range without an end; only the last range may be open");
    } else if (range.start < *before.end) {
      problems.add(
          path, ReasonCode::schedule,
          text::concat("starts at ", range.start, ", inside or before the range [", before.start,
                       ", ", *before.end, "); write ranges in order and without overlap"));
    }
  }
}

void check_windows(const AttentionSchedule& schedule, Problems& problems) {
  for (size_t i = 0; i < schedule.sigma.size(); ++i) {
    const SigmaWindow& window = schedule.sigma[i];
    const Path path = Path{"sigma"}[i];
    check_profile(schedule, window.profile, path, problems);
    const bool valid = window.low >= 0 && window.low < window.high && window.high <= 1;
    if (!valid) {
      problems.add(
          path, ReasonCode::schedule,
          text::concat("expected 0 <= low < high <= 1, found low ", text::format_number(window.low),
                       " and high ", text::format_number(window.high)));
    } else if (i > 0 && window.low < schedule.sigma[i - 1].high) {
      problems.add(path, ReasonCode::schedule,
                   text::concat("starts at ", text::format_number(window.low),
                                ", below the end of the window before, ",
                                text::format_number(schedule.sigma[i - 1].high),
                                "; write windows in rising order and without overlap"));
    }
  }
}

void check_count(int64_t count, std::string_view key, Problems& problems) {
  if (count >= 0) return;
  problems.add(Path{std::string(key)}, ReasonCode::schedule,
               text::concat("expected an integer of at least 0, found ", count));
}

void fit_ranges(const std::vector<StepRange>& ranges, std::string_view list, std::string_view noun,
                int64_t count, Problems& problems) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const StepRange& range = ranges[i];
    const Path path = Path{std::string(list)}[i];
    const bool end_beyond = range.end && *range.end > count;
    if (range.start < count && !end_beyond) continue;
    problems.add(path / (end_beyond ? "end" : "start"), ReasonCode::schedule,
                 text::concat("reaches ", end_beyond ? *range.end : range.start, ", but there are ",
                              count, ' ', noun, "; ranges are not clipped"));
  }
}

void fit_count(int64_t dense, std::string_view key, std::string_view noun, int64_t count,
               Problems& problems) {
  if (dense <= count) return;
  problems.add(Path{std::string(key)}, ReasonCode::schedule,
               text::concat(dense, " is more than the ", count, ' ', noun));
}

}  // namespace

bool valid_profile_name(std::string_view name) noexcept {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

void check_schedule(const AttentionSchedule& schedule, Problems& problems) {
  for (const auto& [name, config] : schedule.profiles) {
    if (valid_profile_name(name)) continue;
    problems.add(Path{"profiles"} / name, ReasonCode::schedule,
                 "a profile name is a letter, then letters, digits, '_' and '-'", name);
  }
  check_ranges(schedule, schedule.steps, "steps", problems);
  check_windows(schedule, problems);
  check_ranges(schedule, schedule.layers, "layers", problems);
  check_count(schedule.dense_first_steps, "dense_first_steps", problems);
  check_count(schedule.dense_first_layers, "dense_first_layers", problems);
  if (!schedule.steps.empty() && !schedule.sigma.empty()) {
    problems.add(Path{"sigma"}, ReasonCode::schedule,
                 "steps and sigma exclude each other; give one, or an empty list to disable the "
                 "other");
  }
}

void check_fit(const AttentionSchedule& schedule, int64_t steps, int64_t layers,
               Problems& problems) {
  fit_ranges(schedule.steps, "steps", "denoising steps", steps, problems);
  fit_ranges(schedule.layers, "layers", "layers", layers, problems);
  fit_count(schedule.dense_first_steps, "dense_first_steps", "denoising steps", steps, problems);
  fit_count(schedule.dense_first_layers, "dense_first_layers", "layers", layers, problems);
}

namespace {

// A profile made by hand may hold anything.
void check_profiles(const AttentionSchedule& schedule, Problems& problems) {
  const auto check = [&](const AttentionSpec& spec, const Path& path) {
    if (const auto status = fovea::validate(spec); !status) {
      problems.add(path, ReasonCode::schedule, status.error().message);
    }
  };
  for (const auto& [name, config] : schedule.profiles) {
    const Path path = Path{"profiles"} / name;
    if (config.default_spec) check(*config.default_spec, path / "default");
    for (const auto& [role, spec] : config.per_role) check(spec, path / "per_role" / role);
  }
}

const std::string* find_profile(const std::vector<StepRange>& ranges, int64_t at) {
  for (const StepRange& range : ranges) {
    if (at >= range.start && (!range.end || at < *range.end)) return &range.profile;
  }
  return nullptr;
}

const std::string* find_profile(const std::vector<SigmaWindow>& windows, double sigma) {
  for (const SigmaWindow& window : windows) {
    const bool below = sigma < window.high || (window.high == 1 && sigma == 1);
    if (sigma >= window.low && below) return &window.profile;
  }
  return nullptr;
}

const std::string* find_profile(const AttentionSchedule& schedule, const SchedulePoint& point) {
  if (const auto* profile = find_profile(schedule.layers, point.layer)) return profile;
  if (const auto* profile = find_profile(schedule.steps, point.step)) return profile;
  return point.sigma ? find_profile(schedule.sigma, *point.sigma) : nullptr;
}

}  // namespace
}  // namespace config

Status validate(const AttentionSchedule& schedule) {
  config::Problems problems;
  config::check_schedule(schedule, problems);
  config::check_profiles(schedule, problems);
  if (!problems.empty()) return problems.error(config::kOrigin);
  return {};
}

Status validate(const AttentionSchedule& schedule, int64_t steps, int64_t layers) {
  FOVEA_CHECK(validate(schedule));
  config::Problems problems;
  config::check_fit(schedule, steps, layers, problems);
  if (!problems.empty()) return problems.error(config::kOrigin);
  return {};
}

Result<AttentionSchedule> apply(const AttentionSchedule& schedule, const ScheduleRequest& request) {
  AttentionSchedule out = schedule;
  if (request.steps) out.steps = *request.steps;
  if (request.sigma) out.sigma = *request.sigma;
  if (request.layers) out.layers = *request.layers;
  out.dense_first_steps = request.dense_first_steps.value_or(out.dense_first_steps);
  out.dense_first_layers = request.dense_first_layers.value_or(out.dense_first_layers);
  FOVEA_CHECK(validate(out));
  return out;
}

std::string_view name(DenseCause cause) noexcept {
  switch (cause) {
    case DenseCause::none:
      return "none";
    case DenseCause::not_sparse:
      return "not_sparse";
    case DenseCause::first_steps:
      return "first_steps";
    case DenseCause::last_steps:
      return "last_steps";
    case DenseCause::first_layers:
      return "first_layers";
    case DenseCause::skipped_layer:
      return "skipped_layer";
  }
  return "unknown";
}

DenseCause dense_cause(const AttentionSpec* spec, int64_t step, int64_t layer,
                       std::optional<int64_t> total_steps) noexcept {
  if (spec == nullptr || !config::is_sparse(spec->backend)) return DenseCause::not_sparse;
  const auto leading = [&](const auto& options) {
    if (step < options.dense_timesteps) return DenseCause::first_steps;
    return layer < options.dense_layers ? DenseCause::first_layers : DenseCause::none;
  };
  if (spec->backend == backend::RADIAL_ATTN) return leading(spec->radial.value_or(RadialOptions{}));
  if (spec->backend == backend::LOCAL_SPARSE_ATTN) {
    return leading(spec->local_sparse.value_or(LocalSparseOptions{}));
  }
  if (!spec->block_sparse) return DenseCause::none;
  const BlockSparseOptions& sparse = *spec->block_sparse;
  if (sparse.sparsity == 0 && sparse.selection == "block_topk") return DenseCause::not_sparse;
  if (step < sparse.start_step) return DenseCause::first_steps;
  if (total_steps && sparse.end_step > 0 && step >= *total_steps - sparse.end_step) {
    return DenseCause::last_steps;
  }
  const auto& skipped = sparse.skip_layers;
  if (std::find(skipped.begin(), skipped.end(), layer) != skipped.end()) {
    return DenseCause::skipped_layer;
  }
  return DenseCause::none;
}

BackendName dense_backend(const AttentionSpec& spec) noexcept {
  if (spec.radial) return spec.radial->dense_backend;
  if (spec.local_sparse) return spec.local_sparse->dense_backend;
  return backend::FLASH_ATTN;
}

ScheduleCell schedule_cell(const AttentionConfig& base, const AttentionSchedule* schedule,
                           std::string_view role, std::string_view category,
                           const SchedulePoint& point) {
  ScheduleCell cell;
  const AttentionConfig* config = &base;
  if (schedule != nullptr) {
    if (const auto* profile = config::find_profile(*schedule, point)) {
      const auto it = schedule->profiles.find(*profile);
      if (it != schedule->profiles.end()) {
        cell.profile = it->first;
        config = &it->second;
      }
    }
  }
  ResolvedSpec resolved = config->resolve(role, category);
  cell.spec = resolved.spec;
  if (resolved.spec == nullptr) resolved.source = "platform default";
  cell.source = cell.profile.empty()
                    ? std::move(resolved.source)
                    : text::concat("profile '", cell.profile, "': ", resolved.source);
  cell.dense = dense_cause(cell.spec, point.step, point.layer, point.total_steps);
  if (cell.sparse() && schedule != nullptr) {
    if (point.step < schedule->dense_first_steps) {
      cell.dense = DenseCause::first_steps;
    } else if (point.layer < schedule->dense_first_layers) {
      cell.dense = DenseCause::first_layers;
    }
  }
  return cell;
}

}  // namespace fovea
