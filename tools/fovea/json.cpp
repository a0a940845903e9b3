#include "tools/fovea/json.hpp"

#include <nlohmann/json.hpp>

#include "src/select/report_json.hpp"

namespace fovea::cli {

namespace {

using report::Json;
using report::number;

std::string print(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json comparison_of(const std::optional<ComparisonReport>& report) {
  if (!report) return nullptr;
  return {{"tensor", report->tensor},
          {"max_abs", number(report->max_abs)},
          {"rel_l1", number(report->rel_l1)},
          {"rel_l2", number(report->rel_l2)},
          {"cosine", number(report->cosine)},
          {"nonfinite_mismatches", report->nonfinite_mismatches},
          {"tolerance", number(report->tolerance)},
          {"pass", report->pass}};
}

Json tensor_of(const TensorReport& tensor) {
  return {{"dtype", name(tensor.dtype)}, {"shape", tensor.shape}};
}

Json strictness_of(const std::optional<Strictness>& strictness) {
  return strictness ? Json(name(*strictness)) : Json(nullptr);
}

Json quality_of(const std::optional<QualityReport>& quality) {
  if (!quality) return nullptr;
  return {{"density", number(quality->density)},
          {"recall", number(quality->recall)},
          {"recall_min", number(quality->recall_min)},
          {"rel_l1", number(quality->rel_l1)},
          {"cosine", number(quality->cosine)}};
}

Json run_of(const RunReport& report, const char* schema, const char* compare) {
  const Timing& timing = report.timing;
  return {{"schema", schema},
          {"role", report.role},
          {"category", report::text(report.category)},
          {"source", report.source},
          {"strictness", strictness_of(report.strictness)},
          {"problem", to_string(report.problem)},
          {"threads", report.threads},
          {"time_ms",
           {{"median", number(timing.median_ms)},
            {"min", number(timing.min_ms)},
            {"max", number(timing.max_ms)},
            {"runs", timing.runs_ms.size()}}},
          {"tflops", number(report.tflops)},
          {"receipt", report::receipt(*report.receipt)},
          {compare, comparison_of(report.compare)},
          {std::string(compare) + "_lse", comparison_of(report.compare_lse)},
          {"outputs",
           {{"out", tensor_of(report.out)},
            {"lse", report.lse ? tensor_of(*report.lse) : Json(nullptr)}}}};
}

}  // namespace

std::string error_json(const Error& error) { return print(report::error(error)); }

std::string run_json(const RunReport& report) {
  return print(run_of(report, "fovea.run/1", "compare"));
}

std::string check_json(const std::vector<RunReport>& reports) {
  Json list = Json::array();
  for (const RunReport& report : reports) {
    Json object = run_of(report, "fovea.check/1", "oracle");
    object["seed"] = report.problem.seed;
    object["oracle_rows"] = *report.oracle_rows;
    object["quality"] = quality_of(report.quality);
    list.push_back(std::move(object));
  }
  return print(list.size() == 1 ? list[0] : list);
}

std::string explain_json(const Explanation& explanation) {
  return print(report::explanation(explanation));
}

std::string backends_json(const BackendsReport& report) {
  Json list = Json::array();
  for (const BackendReport& row : report.backends) {
    Json aliases = Json::array();
    for (const BackendNameInfo& info : backend_names()) {
      if (info.name == row.backend) {
        for (const std::string_view alias : info.aliases) aliases.push_back(alias);
      }
    }
    Json platforms = Json::array();
    for (const PlatformId platform : row.platforms) platforms.push_back(name(platform));
    list.push_back({{"name", name(row.backend)},
                    {"aliases", aliases},
                    {"platforms", platforms},
                    {"provider", report::text(row.report.provider)},
                    {"built", row.report.built},
                    {"available", row.availability.state == Availability::State::available},
                    {"availability", report::availability(row.availability)},
                    {"install", report::text(row.availability.install)},
                    {"support", name(row.report.support)},
                    {"path", report::text(row.report.path)},
                    {"compilation_mode", name(row.report.compilation_mode)},
                    {"reasons", report::reasons(row.report.reasons)},
                    {"assumed", report::reasons(row.assumed)}});
  }
  return print({{"schema", "fovea.backends/1"},
                {"problem", report.problem ? Json(to_string(*report.problem)) : Json(nullptr)},
                {"backends", list}});
}

std::string options_json(const std::vector<OptionBlockInfo>& blocks) {
  const auto names = [](const std::vector<BackendName>& backends) {
    Json list = Json::array();
    for (const BackendName backend : backends) list.push_back(name(backend));
    return list;
  };
  Json list = Json::array();
  for (const OptionBlockInfo& block : blocks) {
    Json fields = Json::array();
    for (const OptionFieldInfo& field : block.fields) {
      fields.push_back(
          {{"name", field.name},
           {"type", name(field.type)},
           {"accepted", field.accepted},
           {"default", field.default_value.empty() ? Json() : Json::parse(field.default_value)},
           {"owners", names(field.owners.empty() ? block.owners : field.owners)},
           {"help", field.summary}});
    }
    list.push_back({{"name", report::text(block.name)},
                    {"owners", names(block.owners)},
                    {"help", block.summary},
                    {"fields", std::move(fields)}});
  }
  return print({{"schema", "fovea.options/1"}, {"blocks", std::move(list)}});
}

std::string bench_json(const BenchReport& report) {
  Json cases = Json::array();
  for (const BenchCase& row : report.cases) {
    Json baselines = Json::array();
    for (const BaselineReport& baseline : row.baselines) {
      baselines.push_back(
          {{"name", baseline.name},
           {"version", baseline.version},
           {"median_ms", number(baseline.median_ms)},
           {"ratio", number(baseline.ratio)},
           {"memory_bytes", baseline.memory_bytes ? Json(*baseline.memory_bytes) : Json(nullptr)}});
    }
    cases.push_back({{"problem", to_string(row.problem)},
                     {"backend", name(row.backend)},
                     {"path", row.path},
                     {"median_ms", number(row.timing.median_ms)},
                     {"p10_ms", number(row.timing.p10_ms)},
                     {"p90_ms", number(row.timing.p90_ms)},
                     {"runs", row.timing.runs_ms.size()},
                     {"tflops", number(row.tflops)},
                     {"tflops_kept", number(row.tflops_kept)},
                     {"density", number(row.density)},
                     {"memory_bytes", row.memory_bytes},
                     {"peak_fraction", number(row.peak_fraction)},
                     {"rel_l2", number(row.rel_l2)},
                     {"pass", row.pass ? Json(*row.pass) : Json(nullptr)},
                     {"baselines", baselines}});
  }
  return print({{"schema", "fovea.bench/1"},
                {"device", report.device},
                {"isa", report::text(report.isa)},
                {"threads", report.threads},
                {"cases", cases}});
}

std::string object_json(const JsonMembers& members) {
  Json object = Json::object();
  for (const auto& [name, value] : members) object[name] = Json::parse(value);
  return print(object);
}

std::string array_json(const std::vector<std::string>& items) {
  Json array = Json::array();
  for (const std::string& item : items) array.push_back(Json::parse(item));
  return array.dump();
}

std::string text_json(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string pretty_json(std::string_view json) { return print(Json::parse(json)); }

}  // namespace fovea::cli
