#include "tools/fovea/contract_report.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fovea/validation.hpp"
#include "src/core/text.hpp"

namespace fovea::cli {

using validation::CaseResult;
using validation::ContractRun;

namespace {

Error unwritable(const std::string& file) {
  return {ErrorCode::invalid_file,
          text::concat("record ", text::quote(file), " cannot be written"),
          {}};
}

}  // namespace

Table contract_table(const ContractRun& run) {
  Table table{{"kind", "problem", "path", "rel_l2", "max_abs", "lse", "outside", "finite", "inputs",
               "form", "result"},
              {}};
  for (const CaseResult& c : run.cases) {
    if (!c.ran()) {
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
                          {c.pass            ? "pass"
                           : c.error.empty() ? "FAIL"
                                             : "FAIL: " + c.error,
                           c.pass ? Colour::good : Colour::bad}});
  }
  return table;
}

std::string contract_summary(const ContractRun& run) {
  const auto count = [&](auto wanted) {
    return std::count_if(run.cases.begin(), run.cases.end(), wanted);
  };
  std::string out =
      text::concat(name(run.backend), " on ", run.device, " (", device_class(run.facts),
                   "): ", count([](const CaseResult& c) { return c.ran() && c.pass; }), " passed, ",
                   count([](const CaseResult& c) { return c.ran() && !c.pass; }), " failed, ",
                   count([](const CaseResult& c) { return !c.ran(); }), " refused\n");
  for (const std::string& path : run.paths()) {
    const std::vector<std::string> kinds = run.kinds(path);
    const bool replayed = std::find(kinds.begin(), kinds.end(), validation::kReplay) != kinds.end();
    out += text::concat(path, ": ", text::join(std::span<const std::string>(kinds)),
                        replayed ? "" : "; nothing was replayed there, so it does not count", "\n");
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
