#include "fovea/explain.hpp"

#include <nlohmann/json.hpp>

#include "fovea/libraries.hpp"
#include "fovea/registry.hpp"
#include "src/capi/handles.hpp"
#include "src/core/text.hpp"
#include "src/select/report_json.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace {

// The facts of the machine's own CPU, or of the device that is described.
fovea::Result<fovea::DeviceFacts> facts_of(const char* platform, const char* facts) {
  if (platform == nullptr) {
    if (facts == nullptr || facts[0] == '\0') return fovea::probe_cpu();
    return fovea::Error{fovea::ErrorCode::invalid_argument,
                        "facts need a platform (accepted: \"cuda\", \"rocm\", ...)",
                        {}};
  }
  FOVEA_TRY(const fovea::PlatformId id, fovea::parse_platform(platform));
  if (id == fovea::PlatformId::cpu && (facts == nullptr || facts[0] == '\0'))
    return fovea::probe_cpu();
  return fovea::parse_facts(id, facts == nullptr ? "" : facts);
}

// The same, and a device of the machine for "cuda:N", "rocm:N" and the like without facts.
fovea::Result<fovea::ExecutionContext> context_of(const char* platform, const char* facts) {
  fovea::ExecutionContext context;
  const std::string_view wanted = platform == nullptr ? "" : platform;
  if (const size_t colon = wanted.find(':'); facts == nullptr && colon != std::string_view::npos) {
    FOVEA_TRY(const fovea::PlatformId id, fovea::parse_platform(wanted.substr(0, colon)));
    const auto index = fovea::text::parse_integer(wanted.substr(colon + 1));
    if (!index || *index < 0 || *index > INT32_MAX)
      return fovea::Error{fovea::ErrorCode::invalid_argument,
                          fovea::text::concat("platform ", fovea::text::quote(wanted),
                                              " needs a number after ':', such as cuda:0"),
                          {}};
    FOVEA_TRY(context.facts, fovea::probe_device(id, static_cast<int>(*index)));
    if (id == fovea::PlatformId::cuda)
      context.device = {fovea::DeviceType::cuda, static_cast<int32_t>(*index)};
    context.local = id == fovea::PlatformId::cuda || id == fovea::PlatformId::cpu;
    return context;
  }
  context.local = platform == nullptr;
  FOVEA_TRY(context.facts, facts_of(platform, facts));
  return context;
}

// What the two explaining functions are asked.
struct Asked {
  fovea::ExecutionContext context;
  std::shared_ptr<const fovea::Platform> platform;
  std::vector<fovea::ExplainQuery> queries;  // empty: the default and every per_role entry
};

fovea::Result<Asked> read(const char* platform, const char* facts, const char* role,
                          const char* category, const char* problem) {
  Asked asked;
  FOVEA_TRY(asked.context, context_of(platform, facts));
  asked.platform = fovea::make_platform(asked.context.facts);
  if (role == nullptr && problem == nullptr) return asked;
  fovea::ExplainQuery query;
  if (role != nullptr) query.role = role;
  if (category != nullptr) query.category = category;
  if (problem != nullptr) {
    FOVEA_TRY(fovea::Problem parsed, fovea::parse_problem(problem));
    query.problem = std::move(parsed);
  }
  asked.queries.push_back(std::move(query));
  return asked;
}

const fovea::AttentionConfig& config_of(const fovea_config* config) {
  static const fovea::AttentionConfig empty;
  return config == nullptr ? empty : config->config;
}

// The entries of a run as JSON.
fovea::Status lay_out(const fovea_config* config, const char* schedule, Asked asked,
                      const fovea::RunLength& length, char** json) {
  if (asked.queries.empty()) asked.queries = fovea::all_queries(config_of(config));
  std::optional<fovea::AttentionSchedule> parsed;
  if (schedule != nullptr) {
    FOVEA_TRY(parsed, fovea::parse_schedule(schedule));
  }
  const std::vector<fovea::RunLength> lengths(asked.queries.size(), length);
  FOVEA_TRY(const fovea::Explanation e,
            fovea::explain_schedule(config_of(config), parsed ? &*parsed : nullptr, asked.platform,
                                    asked.queries, lengths, asked.context));
  *json = fovea::capi::copy(fovea::report::explanation(e).dump());
  return {};
}

}  // namespace

extern "C" {

int32_t fovea_explain(const fovea_config* config, const char* platform, const char* facts,
                      const char* role, const char* category, const char* problem, char** json,
                      fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain", "json");
    FOVEA_TRY(const Asked asked, read(platform, facts, role, category, problem));
    const fovea::Explanation e =
        fovea::explain(config_of(config), asked.platform, asked.queries, asked.context);
    *json = fovea::capi::copy(fovea::report::explanation(e).dump());
    return {};
  });
}

int32_t fovea_explain_run(const fovea_config* config, const char* schedule, const char* platform,
                          const char* facts, const char* role, const char* category,
                          const char* problem, int64_t steps, int64_t layers, char** json,
                          fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain_run", "json");
    FOVEA_TRY(Asked asked, read(platform, facts, role, category, problem));
    return lay_out(config, schedule, std::move(asked), {steps, layers, {}}, json);
  });
}

int32_t fovea_explain_sigmas(const fovea_config* config, const char* schedule, const char* platform,
                             const char* facts, const char* role, const char* category,
                             const char* problem, const double* sigmas, int64_t steps,
                             int64_t layers, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain_sigmas", "json");
    if (sigmas == nullptr) return null_argument("fovea_explain_sigmas", "sigmas");
    FOVEA_TRY(Asked asked, read(platform, facts, role, category, problem));
    // A number of steps that no run has is refused without reading so far.
    constexpr int64_t kMost = 1'000'000;
    const int64_t count = steps >= 1 && steps <= kMost ? steps : 0;
    return lay_out(config, schedule, std::move(asked),
                   {steps, layers, std::vector<double>(sigmas, sigmas + count)}, json);
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
