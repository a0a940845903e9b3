#include "fovea/explain.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "fovea/libraries.hpp"
#include "fovea/registry.hpp"
#include "src/capi/handles.hpp"
#include "src/core/text.hpp"
#include "src/select/report_json.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace fovea {
namespace {

// The facts of the machine's own CPU, or of the device that is described.
Result<DeviceFacts> facts_of(const char* platform, const char* facts) {
  if (platform == nullptr) {
    if (facts == nullptr || facts[0] == '\0') return probe_cpu();
    return Error{ErrorCode::invalid_argument,
                 "facts need a platform (accepted: \"cuda\", \"rocm\", ...)",
                 {}};
  }
  FOVEA_TRY(const PlatformId id, parse_platform(platform));
  if (id == PlatformId::cpu && (facts == nullptr || facts[0] == '\0')) return probe_cpu();
  return parse_facts(id, facts == nullptr ? "" : facts);
}

// The same, and a device of the machine for "cuda:N", "rocm:N" and the like without facts.
Result<ExecutionContext> context_of(const char* platform, const char* facts) {
  ExecutionContext context;
  const std::string_view wanted = platform == nullptr ? "" : platform;
  if (const size_t colon = wanted.find(':'); facts == nullptr && colon != std::string_view::npos) {
    FOVEA_TRY(const PlatformId id, parse_platform(wanted.substr(0, colon)));
    const auto index = text::parse_integer(wanted.substr(colon + 1));
    if (!index || *index < 0 || *index > INT32_MAX)
      return Error{ErrorCode::invalid_argument,
                   text::concat("platform ", text::quote(wanted),
                                " needs a number after ':', such as cuda:0"),
                   {}};
    FOVEA_TRY(context.facts, probe_device(id, static_cast<int>(*index)));
    if (id == PlatformId::cuda) context.device = {DeviceType::cuda, static_cast<int32_t>(*index)};
    context.local = id == PlatformId::cuda || id == PlatformId::cpu;
    return context;
  }
  context.local = platform == nullptr;
  FOVEA_TRY(context.facts, facts_of(platform, facts));
  return context;
}

Error refuse(std::string message) { return {ErrorCode::invalid_argument, std::move(message), {}}; }

// The device of the options: a preset with changes, one of this machine, or a described one.
Result<ExecutionContext> device_of(const fovea_explain_options& o) {
  if (o.device == nullptr) return context_of(o.platform, o.facts);
  if (o.platform != nullptr) return refuse("give either a device or a platform");
  const std::string_view word = text::trim(o.device);
  const Result<PlatformId> platform = parse_platform(word.substr(0, word.find(':')));
  if (platform && *platform != PlatformId::cpu) {
    if (o.facts != nullptr)
      return refuse(text::concat("device ", text::quote(word),
                                 " is asked what it is; leave facts out, or name a preset"));
    const std::string numbered =
        word.find(':') == std::string_view::npos ? text::concat(word, ":0") : std::string(word);
    return context_of(numbered.c_str(), nullptr);
  }
  ExecutionContext context;
  context.local = false;
  FOVEA_TRY(const DevicePreset preset, find_device_preset(word));
  FOVEA_TRY(context.facts,
            parse_facts(preset.platform, overlay_facts(preset.facts, o.facts ? o.facts : "")));
  return context;
}

Result<ModelRun> model_run(const fovea_explain_options& o, const std::vector<double>& sigmas) {
  if (o.problem != nullptr) return refuse("give either a problem or a model");
  const ModelSize size{o.height, o.width, o.frames};
  const bool described = text::trim(o.model).starts_with('{');
  FOVEA_TRY(const ModelDescription model, described ? describe_model_json(o.model, "model", size)
                                                    : describe_model(o.model, size));
  ModelQuery query;
  if (o.role != nullptr) query.role = o.role;
  if (o.category != nullptr) query.category = o.category;
  if (o.dtype != nullptr) {
    const std::optional<DType> dtype = parse_dtype(o.dtype);
    if (!dtype || (*dtype != kF32 && *dtype != kF16 && *dtype != kBF16))
      return refuse(text::concat("dtype ", text::quote(o.dtype),
                                 " is not a type of q, k and v (accepted: f32, f16, bf16)"));
    query.dtype = *dtype;
  }
  query.mask_free = o.mask_free != 0;
  if (o.steps != 0) query.steps = o.steps;
  if (o.layers != 0) query.layers = o.layers;
  query.sigmas = sigmas;
  return model_queries(model, query);
}

// The queries without a model, and their lengths when there is one.
Result<ModelRun> plain_run(const AttentionConfig& config, const fovea_explain_options& o,
                           const std::optional<RunLength>& length) {
  if (o.height != 0 || o.width != 0 || o.frames != 0 || o.dtype != nullptr)
    return refuse("height, width, frames and dtype are those of a model; give one");
  ModelRun run;
  if (o.role == nullptr) {
    run.queries = all_queries(config);
  } else {
    run.queries.emplace_back().role = o.role;
  }
  std::optional<Problem> problem;
  if (o.problem != nullptr) {
    FOVEA_TRY(problem, parse_problem(o.problem));
  }
  for (ExplainQuery& query : run.queries) {
    if (o.category != nullptr) query.category = o.category;
    query.policy.mask_free = o.mask_free != 0;
    query.problem = problem;
  }
  if (length) run.lengths.assign(run.queries.size(), *length);
  return run;
}

// `length`: a run that the caller states, whatever its numbers.
Status answer(const fovea_config* given, const fovea_explain_options& o,
              std::optional<RunLength> length, char** json) {
  AttentionConfig config = given == nullptr ? AttentionConfig{} : given->config;
  std::optional<AttentionSchedule> schedule;
  if (o.schedule != nullptr) {
    FOVEA_TRY(schedule, parse_schedule(o.schedule));
  }
  if ((o.calibration == nullptr) != (o.layer_name == nullptr))
    return refuse("calibration and layer_name go together: layers differ in it");
  if (o.calibration != nullptr) {
    FOVEA_TRY(const SkipSoftmaxCalibration calibration, parse_calibration(o.calibration));
    config = calibrate(std::move(config), calibration, o.layer_name);
    if (schedule)
      for (auto& [name, profile] : schedule->profiles)
        profile = calibrate(std::move(profile), calibration, o.layer_name);
  }
  FOVEA_TRY(const ExecutionContext context, device_of(o));
  const std::vector<double> sigmas = length ? length->sigmas : std::vector<double>();
  FOVEA_TRY(const ModelRun run,
            o.model != nullptr ? model_run(o, sigmas) : plain_run(config, o, length));
  if (run.lengths.empty() && (schedule || o.sigma_count > 0))
    return refuse("a schedule and sigmas need steps and layers, or a model");
  Explanation explanation;
  auto platform = make_platform(context.facts);
  if (run.lengths.empty()) {
    explanation = explain(config, std::move(platform), run.queries, context);
  } else {
    FOVEA_TRY(explanation,
              explain_schedule(config, schedule ? &*schedule : nullptr, std::move(platform),
                               run.queries, run.lengths, context));
  }
  *json = capi::copy(report::explanation(explanation).dump());
  if (*json == nullptr) return Error{ErrorCode::out_of_memory, "no memory for the answer", {}};
  return {};
}

fovea_explain_options options_of(const char* platform, const char* facts, const char* role,
                                 const char* category, const char* problem) {
  fovea_explain_options options{};
  options.platform = platform;
  options.facts = facts;
  options.role = role;
  options.category = category;
  options.problem = problem;
  return options;
}

// As many as there are, up to a number of steps that no run has.
std::vector<double> read_sigmas(const double* sigmas, int64_t count) {
  constexpr int64_t kMost = 1'000'000;
  if (sigmas == nullptr || count < 1 || count > kMost) return {};
  return {sigmas, sigmas + count};
}

}  // namespace
}  // namespace fovea

extern "C" {

int32_t fovea_explain(const fovea_config* config, const char* platform, const char* facts,
                      const char* role, const char* category, const char* problem, char** json,
                      fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain", "json");
    return fovea::answer(config, fovea::options_of(platform, facts, role, category, problem), {},
                         json);
  });
}

int32_t fovea_explain_run(const fovea_config* config, const char* schedule, const char* platform,
                          const char* facts, const char* role, const char* category,
                          const char* problem, int64_t steps, int64_t layers, char** json,
                          fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain_run", "json");
    auto options = fovea::options_of(platform, facts, role, category, problem);
    options.schedule = schedule;
    return fovea::answer(config, options, fovea::RunLength{steps, layers, {}}, json);
  });
}

int32_t fovea_explain_sigmas(const fovea_config* config, const char* schedule, const char* platform,
                             const char* facts, const char* role, const char* category,
                             const char* problem, const double* sigmas, int64_t steps,
                             int64_t layers, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain_sigmas", "json");
    if (sigmas == nullptr) return null_argument("fovea_explain_sigmas", "sigmas");
    auto options = fovea::options_of(platform, facts, role, category, problem);
    options.schedule = schedule;
    return fovea::answer(config, options,
                         fovea::RunLength{steps, layers, fovea::read_sigmas(sigmas, steps)}, json);
  });
}

int32_t fovea_explain_with(const fovea_config* config, const fovea_explain_options* options,
                           char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_explain_with";
    FOVEA_TRY(const fovea_explain_options o,
              fovea::capi::sized(options, kFunction, "options", fovea_explain_options{}));
    if (json == nullptr) return null_argument(kFunction, "json");
    if (o.sigma_count > 0 && o.sigmas == nullptr) return null_argument(kFunction, "sigmas");
    if (o.layers != 0 && o.steps == 0 && o.model == nullptr)
      return fovea::refuse("layers need steps, or a model");
    const bool run = o.steps != 0 || o.model != nullptr;
    std::optional<fovea::RunLength> length;
    if (run) {
      length.emplace();
      length->steps = o.steps;
      if (o.layers != 0) length->layers = o.layers;
      length->sigmas =
          fovea::read_sigmas(o.sigmas, static_cast<int64_t>(std::min<size_t>(
                                           o.sigma_count, std::numeric_limits<int32_t>::max())));
    }
    return fovea::answer(config, o, std::move(length), json);
  });
}

int32_t fovea_set_cudnn_library(const char* file, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (file == nullptr) return null_argument("fovea_set_cudnn_library", "file");
    return fovea::set_cudnn_library(file);
  });
}

int32_t fovea_availability(const char* backend, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (backend == nullptr) return null_argument("fovea_availability", "backend");
    if (json == nullptr) return null_argument("fovea_availability", "json");
    FOVEA_TRY(const fovea::BackendName name, fovea::parse_backend(backend));
    FOVEA_TRY(fovea::DeviceFacts facts, fovea::probe_cpu());
    fovea::Availability a =
        fovea::current_availability(name, *fovea::make_platform(std::move(facts)));
    using State = fovea::Availability::State;
    if (a.state != State::available) {
      if (auto gpu = fovea::probe_cuda(0)) {
        fovea::Availability there = fovea::current_availability(name, *fovea::make_platform(*gpu));
        if (there.state == State::available || a.state == State::wrong_device) a = std::move(there);
      }
    }
    *json = fovea::capi::copy(fovea::report::availability(a).dump());
    return {};
  });
}

}  // extern "C"
