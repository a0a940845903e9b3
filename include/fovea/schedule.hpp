// Which configuration applies at which denoising step and layer, and where sparse attention is
// dense. Step 0 is the first denoising step, the noisiest; layer 0 is the first block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"

namespace fovea {

// From `start` up to but not including `end`; without an end up to the last.
struct StepRange {
  int64_t start = 0;
  std::optional<int64_t> end;
  std::string profile;

  bool operator==(const StepRange&) const = default;
};
using LayerRange = StepRange;

// low <= sigma < high; a window that ends at 1 holds 1 too.
struct SigmaWindow {
  double low = 0;
  double high = 1;
  std::string profile;

  bool operator==(const SigmaWindow&) const = default;
};

// Named profiles and where they apply. A layer range beats a step range or sigma window; what none
// of them covers runs the base configuration. A profile inherits nothing from the base. `steps` and
// `sigma` exclude each other. Value type.
struct AttentionSchedule {
  std::map<std::string, AttentionConfig> profiles;
  std::vector<StepRange> steps;
  std::vector<SigmaWindow> sigma;
  std::vector<LayerRange> layers;
  int64_t dense_first_steps = 0;   // sparse backends run dense in these steps, on top of their own
  int64_t dense_first_layers = 0;  // and in these layers

  bool operator==(const AttentionSchedule&) const = default;
};

// What one request changes: unset inherits, an empty list disables, a list replaces.
struct ScheduleRequest {
  std::optional<std::vector<StepRange>> steps;
  std::optional<std::vector<SigmaWindow>> sigma;
  std::optional<std::vector<LayerRange>> layers;
  std::optional<int64_t> dense_first_steps;
  std::optional<int64_t> dense_first_layers;

  bool operator==(const ScheduleRequest&) const = default;
};

// JSON to a schedule: {"profiles": {NAME: config}, "steps": [{"start", "end", "profile"}], "sigma":
// [{"low", "high", "profile"}], "layers": [{"start", "end", "profile"}], "dense_first_steps",
// "dense_first_layers"}. Error invalid_config with every problem found. Thread-safe.
FOVEA_API Result<AttentionSchedule> parse_schedule(std::string_view json);
// The same keys without profiles; null inherits. Error invalid_config. Thread-safe.
FOVEA_API Result<ScheduleRequest> parse_schedule_request(std::string_view json);
// parse_schedule(to_json(s)) == s for a valid schedule.
FOVEA_API std::string to_json(const AttentionSchedule& schedule);

// Names, ranges, order, overlap, profiles that exist and their configurations. Error
// invalid_config.
FOVEA_API Status validate(const AttentionSchedule& schedule);
// Also that everything fits into `steps` denoising steps and `layers` layers; nothing is clipped.
FOVEA_API Status validate(const AttentionSchedule& schedule, int64_t steps, int64_t layers);
// The schedule of one request, validated. Error invalid_config.
FOVEA_API Result<AttentionSchedule> apply(const AttentionSchedule& schedule,
                                          const ScheduleRequest& request);

// Why a cell is dense.
enum class DenseCause : uint8_t {
  none,           // it is sparse
  not_sparse,     // the backend is dense, or keeps every block
  first_steps,    // dense_timesteps, start_step or dense_first_steps
  last_steps,     // end_step
  first_layers,   // dense_layers or dense_first_layers
  skipped_layer,  // skip_layers
};
FOVEA_API std::string_view name(DenseCause cause) noexcept;

// What a spec says about one step and layer: none when it runs sparse. `total_steps` is needed for
// end_step only; unset, the last steps are not known. Null spec: not_sparse. Thread-safe.
FOVEA_API DenseCause dense_cause(const AttentionSpec* spec, int64_t step, int64_t layer,
                                 std::optional<int64_t> total_steps = {}) noexcept;

// What runs where a sparse spec is dense: its dense_backend, else FLASH_ATTN. Thread-safe.
FOVEA_API BackendName dense_backend(const AttentionSpec& spec) noexcept;

// One point of a run. `sigma` is needed when the schedule has sigma windows.
struct SchedulePoint {
  int64_t step = 0;
  int64_t layer = 0;
  std::optional<int64_t> total_steps;
  std::optional<double> sigma;
};

// What applies at one point. Points into the base or the schedule.
struct ScheduleCell {
  std::string_view profile;             // empty: the base configuration
  const AttentionSpec* spec = nullptr;  // null: platform default
  std::string source;  // "attention_config.default", "profile 'fast': attention_config.default"
  DenseCause dense = DenseCause::not_sparse;

  bool sparse() const noexcept { return dense == DenseCause::none; }
};

// The cell of one role. `schedule` may be null. Base and schedule must outlive the result.
FOVEA_API ScheduleCell schedule_cell(const AttentionConfig& base, const AttentionSchedule* schedule,
                                     std::string_view role, std::string_view category,
                                     const SchedulePoint& point);

// What a matrix is asked for.
struct MatrixQuery {
  std::string role = "self";
  std::string category;
  int64_t steps = 1;
  int64_t layers = 1;
  std::vector<double> sigmas;  // one per step; needed when the schedule has sigma windows
  // A sparse spec under `require` that never runs sparse is left to idle() instead of being an
  // error.
  bool keep_idle = false;
};

// A sparse spec that would run dense at every step and layer where it applies.
struct IdleSpec {
  const AttentionSpec* spec = nullptr;
  Reason reason;
};

// A rectangle of equal cells, ends included.
struct MatrixArea {
  int64_t first_step = 0, last_step = 0;
  int64_t first_layer = 0, last_layer = 0;
  const ScheduleCell* cell = nullptr;
};

// Every step and layer of a run of one role. Base and schedule must outlive it and stay unchanged.
class ScheduleMatrix {
 public:
  // Error invalid_config: the schedule is invalid or does not fit, skip_layers names a layer that
  // does not exist, or a sparse spec under `require` would never run sparse (under `prefer` that is
  // a warning).
  FOVEA_API static Result<ScheduleMatrix> build(const AttentionConfig& base,
                                                const AttentionSchedule* schedule,
                                                const MatrixQuery& query);

  int64_t steps() const noexcept { return steps_; }
  int64_t layers() const noexcept { return layers_; }
  // 0 <= step < steps(), 0 <= layer < layers().
  const ScheduleCell& at(int64_t step, int64_t layer) const noexcept {
    return *cells_[grid_[static_cast<size_t>(step * layers_ + layer)]];
  }
  // Rectangles that cover the matrix, by step, then layer.
  FOVEA_API std::vector<MatrixArea> areas() const;
  // The different specs in use, equal ones once; null stands for the platform default.
  const std::vector<const AttentionSpec*>& specs() const noexcept { return specs_; }
  // One line for each sparse spec under `prefer` that never runs sparse.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  // Every sparse spec that never runs sparse, whatever its strictness.
  const std::vector<IdleSpec>& idle() const noexcept { return idle_; }
  // Cells that run sparse, of steps() * layers().
  FOVEA_API int64_t sparse_cells() const noexcept;

 private:
  int64_t steps_ = 0;
  int64_t layers_ = 0;
  std::vector<std::shared_ptr<const ScheduleCell>> cells_;
  std::vector<uint32_t> grid_;
  std::vector<const AttentionSpec*> specs_;
  std::vector<std::string> warnings_;
  std::vector<IdleSpec> idle_;
};

}  // namespace fovea
