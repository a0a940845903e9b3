#include "src/select/report_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fovea/validation.hpp"

namespace fovea::report {
namespace {

// The command that would verify an unmigrated path, if one would.
Json promotion(const ExplainEntry& e, const DeviceFacts& facts) {
  if (e.report.support != SupportStatus::unmigrated || !validated_by_record(facts)) return nullptr;
  const std::string command = validation_command(e.report.backend, e.report.provider, facts);
  const bool helps =
      e.report.reasons.empty() ||
      std::any_of(e.report.reasons.begin(), e.report.reasons.end(),
                  [&](const Reason& r) { return r.remedy.find(command) != std::string::npos; });
  return helps ? Json(command) : Json(nullptr);
}

// The threshold of skipped tiles, and whether any are.
Json skip_softmax(const std::optional<SkipDecision>& skip) {
  if (!skip) return nullptr;
  return {{"state", name(skip->state)},
          {"factor", number(skip->factor)},
          {"threshold", number(skip->threshold)}};
}

Json skip_softmax(const ExplainEntry& e) {
  Json out = skip_softmax(e.skip);
  if (e.skip) out["ignored_by"] = text(e.skip_ignored_by);
  return out;
}

Json entry(const ExplainEntry& e, const DeviceFacts& facts) {
  const ExecutionPathResult& r = e.report;
  Json trail = Json::array();
  for (const TrailEntry& step : e.trail)
    trail.push_back({{"backend", name(step.backend)},
                     {"verdict", name(step.verdict)},
                     {"reasons", reasons(step.reasons)}});
  return {{"role", e.role},
          {"category", text(e.category)},
          {"layers", e.layers},
          {"steps", e.steps},
          {"profile", text(e.profile)},
          {"dense", e.dense ? Json(name(*e.dense)) : Json(nullptr)},
          {"sparse", e.sparse ? Json{{"on", e.sparse->on}, {"of", e.sparse->of}} : Json(nullptr)},
          {"problem", e.problem ? Json(to_string(*e.problem)) : Json(nullptr)},
          {"backend", name(r.backend)},
          {"provider", text(r.provider)},
          {"source", e.source},
          {"strictness", e.strictness ? Json(name(*e.strictness)) : Json(nullptr)},
          {"spec", e.spec ? Json::parse(to_json(*e.spec)) : Json(nullptr)},
          {"path", text(r.path)},
          {"instance", text(r.instance)},
          {"support", name(r.support)},
          {"built", r.built},
          {"promote", promotion(e, facts)},
          {"compilation_mode", name(r.compilation_mode)},
          {"lossy", r.lossy},
          {"density", number(r.density)},
          {"skip_softmax", skip_softmax(e)},
          {"workspace_bytes", r.workspace_bytes},
          {"comm_bytes", e.comm_bytes},
          {"reasons", reasons(r.reasons)},
          {"assumed", reasons(e.assumed)},
          {"trail", std::move(trail)},
          {"nearest", e.nearest ? Json(name(*e.nearest)) : Json(nullptr)}};
}

}  // namespace

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json text(std::string_view text) { return text.empty() ? Json(nullptr) : Json(text); }

Json reasons(const std::vector<Reason>& reasons) {
  Json list = Json::array();
  for (const Reason& reason : reasons)
    list.push_back({{"code", name(reason.code)},
                    {"field", reason.field},
                    {"got", reason.got},
                    {"accepted", reason.accepted},
                    {"message", sentence(reason)},
                    {"remedy", reason.remedy}});
  return list;
}

Json receipt(const Receipt& r) {
  Json fallback;
  if (r.fallback)
    fallback = {{"from", name(r.fallback->from)}, {"reasons", reasons(r.fallback->reasons)}};
  return {{"backend", name(r.backend)},
          {"provider", r.provider},
          {"path", r.path},
          {"instance", r.instance},
          {"device", r.device},
          {"isa", text(r.isa)},
          {"compute", {{"qk", r.compute_qk}, {"pv", r.compute_pv}, {"accumulate", r.accumulate}}},
          {"padding", {{"head_dim", r.padding_head_dim}, {"seq_kv", r.padding_seq_kv}}},
          {"copies", r.copies},
          {"density", number(r.density)},
          {"deterministic", r.deterministic},
          {"scheduled_dense", r.scheduled_dense},
          {"skip_softmax", skip_softmax(r.skip)},
          {"compilation_mode", name(r.compilation_mode)},
          {"workspace_bytes", r.workspace_bytes},
          {"dispatch", reasons(r.dispatch)},
          {"fallback", std::move(fallback)}};
}

Json error(const Error& e) {
  return {{"error",
           {{"code", static_cast<int>(e.code)},
            {"name", name(e.code)},
            {"message", e.message},
            {"reasons", reasons(e.reasons)}}}};
}

Json explanation(const Explanation& e) {
  Json facts = Json::object();
  for (const auto& [key, value] : e.facts.entries()) facts[key] = value;
  Json entries = Json::array();
  for (const ExplainEntry& item : e.entries) entries.push_back(entry(item, e.facts));
  return {{"schema", "fovea.explain/1"},
          {"platform", name(e.facts.platform())},
          {"facts", std::move(facts)},
          {"entries", std::move(entries)},
          {"warnings", e.warnings}};
}

Json availability(const Availability& a) {
  return {{"backend", name(a.backend)},
          {"state", name(a.state)},
          {"provider", text(a.provider)},
          {"cause", text(a.cause)},
          {"install", text(a.install)}};
}

}  // namespace fovea::report
