#include "tools/fovea/contract_record.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fovea/validation.hpp"
#include "fovea/version.hpp"
#include "src/core/build_info.hpp"
#include "src/core/text.hpp"
#include "src/core/tolerance.hpp"
#include "src/select/report_json.hpp"

namespace fovea::cli {

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

bool ran(const ContractCase& c) { return c.report.support != SupportStatus::unsupported; }

Json case_of(const ContractCase& c) {
  Json out = {{"kind", c.kind},
              {"problem", to_string(c.problem)},
              {"ran", ran(c)},
              {"path", report::text(c.report.path)},
              {"instance", report::text(c.report.instance)}};
  if (!ran(c)) {
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
  return out;
}

// The version of the library that provides the path; nothing for this project's own kernels.
Json library_of(const ContractRun& run) {
  if (run.provider == "fovea") return nullptr;
  if (run.provider == "cudnn")
    return text::concat("cudnn ", run.facts.get("cudnn").value_or("unknown"));
  return run.provider;
}

Error unwritable(const std::string& file) {
  return {ErrorCode::invalid_file,
          text::concat("record ", text::quote(file), " cannot be written"),
          {}};
}

}  // namespace

std::string contract_record(const ContractRun& run) {
  const BuildInfo& build = build_info();
  Json facts = Json::object();
  for (const auto& [key, value] : run.facts.entries()) facts[key] = value;
  Json cases = Json::array();
  for (const ContractCase& c : run.cases) cases.push_back(case_of(c));
  const Json record = {{"schema", "fovea.validation/1"},
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
  return record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Table contract_table(const ContractRun& run) {
  Table table{{"kind", "problem", "path", "rel_l2", "max_abs", "lse", "outside", "finite", "inputs",
               "form", "result"},
              {}};
  for (const ContractCase& c : run.cases) {
    if (!ran(c)) {
      table.rows.push_back({c.kind,
                            to_string(c.problem),
                            "-",
                            "-",
                            "-",
                            "-",
                            "-",
                            "-",
                            "-",
                            "-",
                            {"refused: " + sentence(c.report.reasons), Colour::dim}});
      continue;
    }
    const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
    table.rows.push_back({c.kind,
                          to_string(c.problem),
                          c.report.path,
                          scientific(c.rel_l2),
                          scientific(c.max_abs),
                          scientific(c.lse_error),
                          std::to_string(c.outside),
                          yes(c.finite),
                          c.inputs_unchanged ? "unchanged" : "changed",
                          yes(c.form),
                          {c.pass ? "pass" : "FAIL", c.pass ? Colour::good : Colour::bad}});
  }
  return table;
}

std::string contract_summary(const ContractRun& run) {
  const auto count = [&](auto wanted) {
    return std::count_if(run.cases.begin(), run.cases.end(), wanted);
  };
  std::string out =
      text::concat(name(run.backend), " on ", run.device, " (", device_class(run.facts),
                   "): ", count([](const ContractCase& c) { return ran(c) && c.pass; }),
                   " passed, ", count([](const ContractCase& c) { return ran(c) && !c.pass; }),
                   " failed, ", count([](const ContractCase& c) { return !ran(c); }), " refused\n");
  for (const std::string& kind : contract_kinds()) {
    const bool covered = std::any_of(run.cases.begin(), run.cases.end(), [&](const auto& c) {
      return c.kind == kind && ran(c) && c.pass && c.report.path == run.path;
    });
    if (!covered) {
      out += text::concat("no case of the kind '", kind, "' passed", run.path.empty() ? "" : " on ",
                          run.path, ": not covered\n");
    }
  }
  return out;
}

Status check_record_file(const std::string& file) {
  const std::filesystem::path path(file);
  std::error_code code;
  const bool folder =
      path.parent_path().empty() || std::filesystem::is_directory(path.parent_path(), code);
  if (folder && !path.filename().empty() && !std::filesystem::is_directory(path, code)) return {};
  return unwritable(file);
}

Status write_record(const std::string& file, const std::string& record) {
  std::ofstream stream(file, std::ios::binary);
  stream << record;
  stream.flush();
  if (stream) return {};
  return unwritable(file);
}

}  // namespace fovea::cli
