#include "src/validation/record.hpp"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "fovea/validation.hpp"
#include "fovea/version.hpp"
#include "src/core/build_info.hpp"
#include "src/core/text.hpp"
#include "src/core/tolerance.hpp"
#include "src/select/report_json.hpp"

namespace fovea::validation {

namespace {

using report::Json;
using report::number;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &utc)};
}

Json case_of(const CaseResult& c) {
  Json out = {{"kind", c.kind},
              {"problem", to_string(c.problem)},
              {"ran", c.ran()},
              {"path", report::text(c.report.path)},
              {"instance", report::text(c.report.instance)}};
  if (c.metadata.npu_attn_varlen) out["npu_attn_varlen"] = true;
  if (c.metadata.packed_padding)
    out["packed_padding"] = {{"q_length", c.metadata.packed_padding->q_length},
                             {"kv_length", c.metadata.packed_padding->kv_length}};
  if (!c.ran()) {
    out["reasons"] = report::reasons(c.report.reasons);
    return out;
  }
  out["max_abs"] = number(c.max_abs);
  out["rel_l2"] = number(c.rel_l2);
  out["lse_max_abs"] = number(c.lse_error);
  out["outside"] = c.outside;
  out["form"] = c.form;
  out["finite"] = c.finite;
  out["inputs_unchanged"] = c.inputs_unchanged;
  out["pass"] = c.pass;
  if (!c.error.empty()) out["error"] = c.error;
  return out;
}

// The version of the library that provides the path; nothing for this project's own kernels.
Json library_of(const ContractRun& run) {
  if (run.provider == "fovea") return nullptr;
  if (run.provider == "cudnn")
    return text::concat("cudnn ", run.facts.get("cudnn").value_or("unknown"));
  return run.provider;
}

}  // namespace

std::string record_text(const ContractRun& run, const std::map<std::string, std::string>& host) {
  const BuildInfo& build = build_info();
  Json facts = Json::object();
  for (const auto& [key, value] : run.facts.entries()) facts[key] = value;
  Json cases = Json::array();
  for (const CaseResult& c : run.cases) cases.push_back(case_of(c));
  Json record = {{"schema", "fovea.validation/1"},
                 {"backend", name(run.backend)},
                 {"provider", report::text(run.provider)},
                 {"path", report::text(run.path)},
                 {"platform", name(run.facts.platform())},
                 {"device_class", device_class(run.facts)},
                 {"device", run.device},
                 {"driver", report::text(run.driver)},
                 {"library", library_of(run)},
                 {"compiler", build.compiler},
                 {"cuda_compiler", report::text(build.cuda)},
                 {"fovea", version()},
                 {"facts", std::move(facts)},
                 {"date", today()},
                 {"atol", kValidationBf16},
                 {"rtol", kValidationBf16},
                 {"captured", run.captured},
                 {"pass", run.pass()},
                 {"cases", std::move(cases)}};
  for (const auto& [software, version] : host) record["host"][software] = version;
  return record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fovea::validation
