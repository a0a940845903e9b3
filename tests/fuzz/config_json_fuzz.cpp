// JSON texts as configurations, schedules, calibrations, models and devices: accepted ones read
// back equal and are valid, refused ones say why.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/calibration.hpp"
#include "fovea/config.hpp"
#include "fovea/schedule.hpp"
#include "src/core/text.hpp"
#include "src/platform/model_data.hpp"

using namespace fovea;

namespace {

void expect(bool truth) {
  if (!truth) __builtin_trap();
}

void check_error(const Error& error) {
  expect(error.code == ErrorCode::invalid_config);
  expect(!error.message.empty());
  expect(text::valid_utf8(error.message));
}

void check_config(const AttentionConfig& config) {
  const std::string text = to_json(config);
  const auto again = parse_config(text);
  expect(again.has_value());
  expect(again && *again == config);
  expect(again && to_json(*again) == text);
  if (config.default_spec) expect(validate(*config.default_spec).has_value());
  for (const auto& [role, spec] : config.per_role) {
    expect(validate(spec).has_value());
    expect(config.resolve(role).spec == &spec);
  }
}

void check_schedule(const AttentionSchedule& schedule) {
  const auto again = parse_schedule(to_json(schedule));
  expect(again && *again == schedule);
  expect(validate(schedule).has_value());
  const AttentionConfig base;
  MatrixQuery query{"self", "", 6, 3, {1.0, 0.8, 0.6, 0.4, 0.2, 0.0}};
  const auto matrix = ScheduleMatrix::build(base, &schedule, query);
  if (!matrix) return check_error(matrix.error());
  int64_t covered = 0;
  for (const MatrixArea& area : matrix->areas()) {
    covered += (area.last_step - area.first_step + 1) * (area.last_layer - area.first_layer + 1);
  }
  expect(covered == 18);
}

// The input's own text is the name of a layer too, so that patterns meet every character.
void check_calibration(const SkipSoftmaxCalibration& calibration, std::string_view input) {
  expect(!calibration.experts.empty());
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = backend::TRTLLM_ATTN;
  spec.skip_softmax.emplace().target_sparsity = 0.5;
  for (const auto& [transformer, expert] : calibration.experts) {
    expect(expert.a > 0);
    for (const std::string& layer : {transformer + ".blocks.0", std::string(input)}) {
      const AttentionConfig filled = calibrate(config, calibration, layer);
      expect(to_json(filled) == to_json(config));
      const SkipDecision skip = decide_skip(*filled.default_spec->skip_softmax, 64, 0.5);
      expect(skip.state == SkipState::skips || skip.state == SkipState::ignored_layer ||
             skip.state == SkipState::uncalibrated);
      expect(skip.factor.has_value() == (skip.state == SkipState::skips));
    }
  }
}

void check_model(const Result<ModelDescription>& model) {
  expect(model && !model->name.empty() && !model->roles.empty());
  for (const ModelRole& role : model->roles) {
    expect(role.seq_q > 0 && role.seq_kv > 0 && role.heads > 0 && role.head_dim > 0);
    expect(role.layers >= 1 && role.layers <= model->layers);
    expect(role.mask == MaskKind::none || !model->mask_free);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto config = parse_config(input);
  if (config) {
    check_config(*config);
  } else {
    check_error(config.error());
  }
  const auto schedule = parse_schedule(input);
  if (schedule) {
    check_schedule(*schedule);
  } else {
    check_error(schedule.error());
  }
  const auto calibration = parse_calibration(input);
  if (calibration) {
    check_calibration(*calibration, input);
  } else {
    check_error(calibration.error());
  }
  const auto model = platform::parse_model(input, "model.json");
  if (model) {
    check_model(platform::describe(*model, {}));
  } else {
    check_error(model.error());
  }
  return 0;
}
