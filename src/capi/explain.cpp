#include "fovea/explain.hpp"

#include <nlohmann/json.hpp>

#include "fovea/libraries.hpp"
#include "src/capi/handles.hpp"
#include "src/select/report_json.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace {

// The facts of the machine's own CPU, or of the device that is described.
fovea::Result<fovea::DeviceFacts> facts_of(const char* platform, const char* facts) {
  if (platform == nullptr) return fovea::probe_cpu();
  FOVEA_TRY(const fovea::PlatformId id, fovea::parse_platform(platform));
  if (id == fovea::PlatformId::cpu && (facts == nullptr || facts[0] == '\0'))
    return fovea::probe_cpu();
  return fovea::parse_facts(id, facts == nullptr ? "" : facts);
}

// The same, and the machine's own GPU for "cuda:N" without facts.
fovea::Result<fovea::ExecutionContext> context_of(const char* platform, const char* facts) {
  fovea::ExecutionContext context;
  if (platform != nullptr && facts == nullptr && std::string_view(platform).starts_with("cuda:")) {
    FOVEA_TRY(context.device, fovea::parse_device(platform));
    FOVEA_TRY(context.facts, fovea::probe_cuda(context.device.index));
    return context;
  }
  context.local = platform == nullptr;
  FOVEA_TRY(context.facts, facts_of(platform, facts));
  return context;
}

}  // namespace

extern "C" {

int32_t fovea_explain(const fovea_config* config, const char* platform, const char* facts,
                      const char* role, const char* category, const char* problem, char** json,
                      fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain", "json");
    FOVEA_TRY(const fovea::ExecutionContext context, context_of(platform, facts));
    std::vector<fovea::ExplainQuery> queries;
    if (role != nullptr || problem != nullptr) {
      fovea::ExplainQuery query;
      if (role != nullptr) query.role = role;
      if (category != nullptr) query.category = category;
      if (problem != nullptr) {
        FOVEA_TRY(fovea::Problem parsed, fovea::parse_problem(problem));
        query.problem = std::move(parsed);
      }
      queries.push_back(std::move(query));
    }
    const fovea::AttentionConfig empty;
    const fovea::Explanation e =
        fovea::explain(config == nullptr ? empty : config->config,
                       fovea::make_platform(context.facts), queries, context);
    *json = fovea::capi::copy(fovea::report::explanation(e).dump());
    return {};
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
    fovea::Availability a = fovea::availability(name, *fovea::make_platform(std::move(facts)));
    using State = fovea::Availability::State;
    if (a.state != State::available) {
      if (auto gpu = fovea::probe_cuda(0)) {
        fovea::Availability there = fovea::availability(name, *fovea::make_platform(*gpu));
        if (there.state == State::available || a.state == State::wrong_device) a = std::move(there);
      }
    }
    *json = fovea::capi::copy(fovea::report::availability(a).dump());
    return {};
  });
}

}  // extern "C"
