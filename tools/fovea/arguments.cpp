#include "tools/fovea/arguments.hpp"

#include <algorithm>

#include "fovea/added_platform.hpp"
#include "fovea/calibration.hpp"
#include "fovea/libraries.hpp"
#include "src/core/text.hpp"
#include "src/cuda_device/device.hpp"

namespace fovea::cli {

namespace {

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

// JSON text or a path, rather than the name of a preset.
bool names_file(std::string_view argument) {
  const std::string_view word = text::trim(argument);
  return word.starts_with('{') || word.ends_with(".json") ||
         word.find('/') != std::string_view::npos;
}

std::string_view origin_of(const std::string& argument, std::string_view flag) {
  return text::trim(argument).starts_with('{') ? flag : std::string_view(argument);
}

// Says how a file would be named, where a name is not that of a preset.
template <class T>
Result<T> named(Result<T> found) {
  if (found || !found.error().message.starts_with("unknown")) return found;
  Error error = std::move(found).error();
  error.message += "; a file is named by a path with a '/' or ending in .json";
  return error;
}

constexpr const char* kCudnnHelp = "The cuDNN library to load on a GPU (libcudnn.so.9)";

// A device of this machine rather than a preset.
struct LocalName {
  PlatformId platform = PlatformId::cpu;
  int index = 0;
};

// Reads "cuda", "rocm:1" and the like. Nothing for other names; an error for a wrong index.
Result<std::optional<LocalName>> local_name(const std::string& device) {
  const std::string word = text::fold(text::trim(device));
  const size_t colon = word.find(':');
  for (const PlatformId platform : all_platforms()) {
    if (platform == PlatformId::cpu || word.substr(0, colon) != name(platform)) continue;
    if (colon == std::string::npos) return std::optional(LocalName{platform, 0});
    const std::optional<int64_t> index = text::parse_integer(word.substr(colon + 1));
    if (!index || *index < 0 || *index > INT32_MAX)
      return usage_error(text::concat("--device ", text::quote(device),
                                      " needs a number after ':', ", "such as ", name(platform),
                                      ":0"));
    return std::optional(LocalName{platform, static_cast<int>(*index)});
  }
  return std::optional<LocalName>();
}

Result<DevicePreset> device_preset(const std::string& argument) {
  if (!names_file(argument)) return named(find_device_preset(argument));
  FOVEA_TRY(const std::string text, read_config_argument(argument, "device"));
  return parse_device_preset(text, origin_of(argument, "--device"));
}

}  // namespace

Result<ModelDescription> read_model(const std::string& argument, ModelSize size) {
  if (!names_file(argument)) return named(describe_model(argument, size));
  FOVEA_TRY(const std::string text, read_config_argument(argument, "model"));
  return describe_model_json(text, origin_of(argument, "--model"), size);
}

void ConfigArguments::declare(Flags& flags) {
  flags.add("--config", "FILE|JSON", &config,
            "Configuration; text that starts with { is JSON. Single entries: --config.A.B VALUE");
  flags.add("--backend", "NAME", &backend, "Backend for every role, in place of a configuration");
}

Result<AttentionConfig> ConfigArguments::build(const std::vector<ConfigFlag>& config_flags) const {
  ConfigSources sources;
  if (config) {
    FOVEA_TRY(sources.text, read_config_argument(*config));
    const bool inline_text = text::trim(*config).starts_with('{');
    sources.origin = inline_text ? "--config" : *config;
  }
  if (backend) {
    if (text::trim(*backend).empty()) return usage_error("--backend needs the name of a backend");
    sources.backend = *backend;
  }
  sources.flags = config_flags;
  sources.environment = environment_backend();
  return build_config(sources);
}

void ScheduleArguments::declare(Flags& flags) {
  flags.add("--schedule", "FILE|JSON", &schedule,
            "Profiles and the steps, sigmas and layers where they apply");
  flags.add("--request", "FILE|JSON", &request, "What one request changes of the schedule");
}

Result<std::optional<AttentionSchedule>> ScheduleArguments::build() const {
  if (request && !schedule) return usage_error("--request changes a schedule; give --schedule too");
  if (!schedule) return std::optional<AttentionSchedule>();
  FOVEA_TRY(const std::string text, read_config_argument(*schedule, "schedule"));
  FOVEA_TRY(AttentionSchedule parsed, parse_schedule(text));
  if (request) {
    FOVEA_TRY(const std::string change, read_config_argument(*request, "request"));
    FOVEA_TRY(const ScheduleRequest changes, parse_schedule_request(change));
    FOVEA_TRY(parsed, apply(parsed, changes));
  }
  return std::optional<AttentionSchedule>(std::move(parsed));
}

void CalibrationArguments::declare(Flags& flags) {
  flags.add("--calibration", "FILE|JSON", &calibration,
            "A checkpoint's config.json, for skip_softmax.target_sparsity");
  flags.add("--layer-name", "NAME", &layer,
            "The layer's name in the checkpoint, e.g. transformer.blocks.5.attn1");
}

Status CalibrationArguments::apply(AttentionConfig& config,
                                   std::optional<AttentionSchedule>& schedule) const {
  if (!calibration && !layer) return {};
  if (!calibration || !layer)
    return usage_error("--calibration and --layer-name go together: layers differ in it");
  FOVEA_TRY(const std::string text, read_config_argument(*calibration, "calibration"));
  FOVEA_TRY(const SkipSoftmaxCalibration parsed, parse_calibration(text));
  config = calibrate(std::move(config), parsed, *layer);
  if (!schedule) return {};
  for (auto& [name, profile] : schedule->profiles)
    profile = calibrate(std::move(profile), parsed, *layer);
  return {};
}

void MetadataArguments::declare(Flags& flags) {
  flags.add("--metadata", "FILE|JSON", &metadata,
            "What is known of the masks and lengths of the call (docs/metadata.md)");
}

Result<std::optional<AttentionMetadata>> MetadataArguments::build() const {
  if (!metadata) return std::optional<AttentionMetadata>();
  FOVEA_TRY(const std::string text, read_config_argument(*metadata, "metadata"));
  FOVEA_TRY(AttentionMetadata parsed, parse_metadata(text));
  return std::optional<AttentionMetadata>(std::move(parsed));
}

void FactsArguments::declare(Flags& flags) {
  flags.add(
      "--device", "PRESET|FILE", &device,
      "Judge for a named device such as h200 ('fovea devices --presets') or one described by a "
      ".json file, or for cuda[:N], rocm[:N], npu[:N], xpu[:N] or "
      "musa[:N] of this machine (its CPU)");
  flags.add("--platform", "NAME", &platform, "Judge for cuda, rocm, npu, xpu, musa or cpu");
  flags.add("--facts", "KEY=VALUE,...", &facts,
            "What is known of that device; with --device, changes to the preset");
  flags.add("--cudnn", "FILE", &cudnn, kCudnnHelp);
}

Result<FactsArguments::Judged> FactsArguments::read() const {
  if (cudnn) FOVEA_CHECK(set_cudnn_library(*cudnn));
  std::optional<PlatformId> wanted;
  if (platform) {
    FOVEA_TRY(wanted, parse_platform(*platform));
  }
  if (device) {
    FOVEA_TRY(const std::optional<LocalName> local, local_name(*device));
    if (local) return read_local(local->platform, local->index);
  }
  if (device) {
    FOVEA_TRY(const DevicePreset preset, device_preset(*device));
    if (wanted && *wanted != preset.platform) {
      return usage_error(text::concat("--device ", *device, " is on platform ",
                                      name(preset.platform), ", but --platform says ",
                                      name(*wanted), "; leave one of them out"));
    }
    FOVEA_TRY(
        DeviceFacts stated,
        parse_facts(preset.platform, facts ? overlay_facts(preset.facts, *facts) : preset.facts));
    return Judged{std::move(stated), false};
  }
  if (facts) {
    if (!wanted) {
      return usage_error("--facts needs --platform or --device, to know which facts are meant");
    }
    FOVEA_TRY(DeviceFacts parsed, parse_facts(*wanted, *facts));
    return Judged{std::move(parsed), false};
  }
  if (wanted && *wanted != PlatformId::cpu) return read_local(*wanted, 0);
  FOVEA_TRY(DeviceFacts local, probe_cpu());
  return Judged{std::move(local), true};
}

Result<FactsArguments::Judged> FactsArguments::read_local(PlatformId id, int index) const {
  const bool cuda = id == PlatformId::cuda;
  if (device && (platform || (cuda && facts))) {
    return usage_error(text::concat("--device ", *device, " is asked what it is; leave ",
                                    cuda ? "--platform and --facts" : "--platform",
                                    " out, or name a preset to change"));
  }
  Result<DeviceFacts> probed = probe_device(id, index);
  if (!probed) {
    Error error = std::move(probed).error();
    error.message += "; describe one with --platform and --facts, or name a preset with --device";
    if (!device) error.code = ErrorCode::invalid_argument;
    return error;
  }
  if (cuda) return Judged{*std::move(probed), true, Device{DeviceType::cuda, index}};
  // Another program runs the packages there; what it has installed can be stated.
  if (facts) {
    std::string found;
    for (const auto& [key, value] : probed->entries())
      found += text::concat(found.empty() ? "" : ",", key, '=', value);
    FOVEA_TRY(probed, parse_facts(id, overlay_facts(found, *facts)));
  }
  return Judged{*std::move(probed), false};
}

void DeviceArguments::declare(Flags& flags) {
  flags.add("--device", "cpu|cuda[:N]", &device, "Where to run (cpu)");
  flags.add("--cudnn", "FILE", &cudnn, kCudnnHelp);
  flags.add("--threads", "N", &threads, "CPU threads (FOVEA_NUM_THREADS, else all)");
}

Result<Device> DeviceArguments::target() const {
  FOVEA_TRY(const Device parsed, parse_device(device));
  if (cudnn) FOVEA_CHECK(set_cudnn_library(*cudnn));
  if (parsed.type == DeviceType::cpu) return parsed;
  if (auto info = cuda::device_info(parsed.index); !info) {
    Error error = std::move(info).error();
    error.message = text::concat("--device ", to_string(parsed), ": ", error.message,
                                 " ('fovea explain --device h200' judges a configuration for a "
                                 "GPU that is not here)");
    return error;
  }
  return parsed;
}

Result<std::unique_ptr<Executor>> DeviceArguments::executor() const {
  FOVEA_CHECK(at_least("--threads", threads, 0));
  constexpr int64_t kMost = 4096;
  if (threads > kMost) {
    return usage_error(text::concat("--threads must be at most ", kMost, ", not ", threads));
  }
  return make_openmp_executor(static_cast<int>(threads));
}

Result<Window> parse_window(const std::string& text) {
  const std::vector<std::string_view> sides = text::split(text, ',');
  Window window;
  const auto read = [](std::string_view side, int64_t& to) {
    const std::optional<int64_t> value = text::parse_integer(text::trim(side));
    if (value) to = *value;
    return value && *value >= -1;
  };
  if (sides.size() != 2 || !read(sides[0], window.left) || !read(sides[1], window.right)) {
    return usage_error(
        "--window needs LEFT,RIGHT, two whole numbers of at least -1 (-1 is "
        "unbounded), not " +
        text::quote(text));
  }
  return window;
}

Result<DType> parse_input_dtype(const std::string& text) {
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype && (*dtype == kF32 || *dtype == kF16 || *dtype == kBF16)) return *dtype;
  return usage_error("--dtype " + text::quote(text) +
                     " is not a type of q, k and v (accepted: f32, f16, bf16)");
}

Problem plain_problem(DType dtype, std::optional<int64_t> head_dim) {
  Problem problem;
  problem.dtype = problem.out_dtype = dtype;
  if (head_dim) problem.head_dim = problem.dim_v = *head_dim;
  fill_strides(problem);
  return problem;
}

Status at_least(const std::string& flag, int64_t value, int64_t low) {
  if (value >= low) return {};
  return usage_error(text::concat(flag, " must be at least ", low, ", not ", value));
}

}  // namespace fovea::cli
