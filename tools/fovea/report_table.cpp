#include "tools/fovea/report_table.hpp"

#include "src/core/text.hpp"

namespace fovea::cli {

namespace {

std::string shape_text(const TensorReport& tensor) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  return text::concat(name(tensor.dtype), "[", text::join(sizes, ","), "]");
}

Table::Cell verdict(const ComparisonReport& compare) {
  const std::string text =
      text::concat(compare.pass ? "pass" : "FAIL", "  rel_l2 ", scientific(compare.rel_l2),
                   ", max_abs ", scientific(compare.max_abs), ", cosine ", fixed(compare.cosine, 9),
                   ", non-finite mismatches ", compare.nonfinite_mismatches, " (", compare.tensor,
                   ", limit ", scientific(compare.tolerance), ")");
  return {text, compare.pass ? Colour::good : Colour::bad};
}

std::string fallback_text(const Receipt& receipt) {
  if (!receipt.fallback) return "none";
  return text::concat("from ", name(receipt.fallback->from), ": ",
                      sentence(receipt.fallback->reasons));
}

std::string passed(const std::optional<ComparisonReport>& compare) {
  return compare ? (compare->pass ? "true" : "false") : "";
}

std::string figure(const std::optional<ComparisonReport>& compare,
                   double ComparisonReport::*member) {
  return compare ? text::format_number((*compare).*member) : "";
}

}  // namespace

std::string receipt_line(const Receipt& receipt) {
  return text::concat(name(receipt.backend), " by ", receipt.provider, ", ", receipt.path, " ",
                      receipt.instance, ", qk ", receipt.compute_qk, ", pv ", receipt.compute_pv,
                      ", sums ", receipt.accumulate);
}

Fields run_fields(const RunReport& report) {
  const Receipt& receipt = *report.receipt;
  const Timing& timing = report.timing;
  const std::string range =
      timing.runs_ms.size() < 2
          ? std::string()
          : text::concat("  (", duration(timing.min_ms), " to ", duration(timing.max_ms), ", ",
                         timing.runs_ms.size(), " runs)");
  Fields fields;
  fields.emplace_back("role", report.category.empty()
                                  ? report.role
                                  : text::concat(report.role, " (", report.category, ")"));
  fields.emplace_back("problem", to_string(report.problem));
  fields.emplace_back("backend", Table::Cell(name(receipt.backend), Colour::strong));
  fields.emplace_back("chosen by", report.strictness
                                       ? text::concat(report.source, ", ", name(*report.strictness))
                                       : report.source);
  fields.emplace_back("path", text::concat(receipt.path, ", instance ", receipt.instance, ", by ",
                                           receipt.provider));
  if (!receipt.dispatch.empty()) fields.emplace_back("chosen since", sentence(receipt.dispatch));
  fields.emplace_back("device", text::concat(receipt.device, ", ", report.threads,
                                             report.threads == 1 ? " thread" : " threads"));
  fields.emplace_back("compute", text::concat("qk ", receipt.compute_qk, ", pv ",
                                              receipt.compute_pv, ", sums ", receipt.accumulate));
  fields.emplace_back("fallback", Table::Cell(fallback_text(receipt),
                                              receipt.fallback ? Colour::warn : Colour::none));
  if (!receipt.copies.empty()) fields.emplace_back("copied", text::join(receipt.copies));
  fields.emplace_back("workspace", byte_count(receipt.workspace_bytes));
  fields.emplace_back("time", text::concat(duration(timing.median_ms), range));
  fields.emplace_back("speed", flop_rate(report.tflops));
  if (report.compare) fields.emplace_back("agreement", verdict(*report.compare));
  if (report.compare_lse) fields.emplace_back("lse", verdict(*report.compare_lse));
  fields.emplace_back(
      "output", shape_text(report.out) + (report.lse ? ", lse " + shape_text(*report.lse) : ""));
  if (report.output_file) fields.emplace_back("written to", *report.output_file);
  return fields;
}

Table run_table(const std::vector<RunReport>& reports) {
  Table table{{"role",      "category",  "source",          "strictness",    "problem",
               "threads",   "median_ms", "min_ms",          "max_ms",        "runs",
               "tflops",    "backend",   "provider",        "path",          "instance",
               "device",    "isa",       "workspace_bytes", "fallback_from", "tensor",
               "max_abs",   "rel_l1",    "rel_l2",          "cosine",        "nonfinite_mismatches",
               "tolerance", "pass",      "lse_max_abs",     "lse_pass"},
              {}};
  for (const RunReport& report : reports) {
    const Receipt& receipt = *report.receipt;
    const auto& compare = report.compare;
    table.rows.push_back({report.role,
                          report.category,
                          report.source,
                          report.strictness ? std::string(name(*report.strictness)) : "",
                          to_string(report.problem),
                          std::to_string(report.threads),
                          text::format_number(report.timing.median_ms),
                          text::format_number(report.timing.min_ms),
                          text::format_number(report.timing.max_ms),
                          std::to_string(report.timing.runs_ms.size()),
                          text::format_number(report.tflops),
                          name(receipt.backend),
                          receipt.provider,
                          receipt.path,
                          receipt.instance,
                          receipt.device,
                          receipt.isa,
                          std::to_string(receipt.workspace_bytes),
                          receipt.fallback ? name(receipt.fallback->from) : "",
                          compare ? compare->tensor : "",
                          figure(compare, &ComparisonReport::max_abs),
                          figure(compare, &ComparisonReport::rel_l1),
                          figure(compare, &ComparisonReport::rel_l2),
                          figure(compare, &ComparisonReport::cosine),
                          compare ? std::to_string(compare->nonfinite_mismatches) : "",
                          figure(compare, &ComparisonReport::tolerance),
                          passed(compare),
                          figure(report.compare_lse, &ComparisonReport::max_abs),
                          passed(report.compare_lse)});
  }
  return table;
}

Table quality_table(const std::vector<RunReport>& reports) {
  Table table{{"problem", "density", "mass kept", "worst row", "rel_l1", "cosine"}, {}};
  for (const RunReport& report : reports) {
    if (!report.quality) continue;
    const QualityReport& quality = *report.quality;
    table.rows.push_back({to_string(report.problem), fixed(quality.density, 4),
                          fixed(quality.recall, 4), fixed(quality.recall_min, 4),
                          scientific(quality.rel_l1), fixed(quality.cosine, 6)});
  }
  return table;
}

Table check_table(const std::vector<RunReport>& reports) {
  Table table{{"problem", "backend", "path", "rows", "rel_l2", "limit", "max_abs", "lse max_abs",
               "lse limit", "time", "result"},
              {}};
  for (const RunReport& report : reports) {
    const ComparisonReport& compare = *report.compare;
    const auto& lse = report.compare_lse;
    const bool pass = compare.pass && (!lse || lse->pass);
    table.rows.push_back({to_string(report.problem),
                          name(report.receipt->backend),
                          report.receipt->path,
                          std::to_string(*report.oracle_rows),
                          scientific(compare.rel_l2),
                          scientific(compare.tolerance),
                          scientific(compare.max_abs),
                          lse ? scientific(lse->max_abs) : "-",
                          lse ? scientific(lse->tolerance) : "-",
                          duration(report.timing.median_ms),
                          {pass ? "pass" : "FAIL", pass ? Colour::good : Colour::bad}});
  }
  return table;
}

}  // namespace fovea::cli
