#include "fovea/explain.hpp"

#include <nlohmann/json.hpp>

#include "src/capi/handles.hpp"
#include "src/select/report_json.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace {

// The machine's own CPU, or the device that is described.
fovea::Result<fovea::DeviceFacts> facts_of(const char* platform, const char* facts) {
  if (platform == nullptr) return fovea::probe_cpu();
  FOVEA_TRY(const fovea::PlatformId id, fovea::parse_platform(platform));
  if (id == fovea::PlatformId::cpu && (facts == nullptr || facts[0] == '\0'))
    return fovea::probe_cpu();
  return fovea::parse_facts(id, facts == nullptr ? "" : facts);
}

}  // namespace

extern "C" {

int32_t fovea_explain(const fovea_config* config, const char* platform, const char* facts,
                      const char* role, const char* category, const char* problem, char** json,
                      fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_explain", "json");
    FOVEA_TRY(fovea::DeviceFacts device, facts_of(platform, facts));
    fovea::ExecutionContext context;
    context.local = platform == nullptr;
    context.facts = device;
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
                       fovea::make_platform(std::move(device)), queries, context);
    *json = fovea::capi::copy(fovea::report::explanation(e).dump());
    return {};
  });
}

int32_t fovea_availability(const char* backend, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (backend == nullptr) return null_argument("fovea_availability", "backend");
    if (json == nullptr) return null_argument("fovea_availability", "json");
    FOVEA_TRY(const fovea::BackendName name, fovea::parse_backend(backend));
    FOVEA_TRY(fovea::DeviceFacts facts, fovea::probe_cpu());
    const fovea::Availability a =
        fovea::availability(name, *fovea::make_platform(std::move(facts)));
    *json = fovea::capi::copy(fovea::report::availability(a).dump());
    return {};
  });
}

}  // extern "C"
