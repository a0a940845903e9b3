// fovea check: a backend against the float64 oracle on random inputs.
#include <algorithm>

#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/layer_run.hpp"
#include "tools/fovea/report_table.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

// The oracle takes about a second for 2e9 on one core; of larger problems it computes some rows.
constexpr double kOracleFlops = 2e10;

bool passed(const RunReport& report) {
  return report.compare->pass && (!report.compare_lse || report.compare_lse->pass);
}

class CheckVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("--problem", "S", &problems_, "Problem string; may be given several times");
    config_.declare(flags);
    flags.add("--role", "NAME", &role_, "Role of the layer (self)");
    flags.add("--category", "NAME", &category_, "Category of the role");
    device_.declare(flags);
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    if (problems_.empty()) {
      return Error{ErrorCode::invalid_argument,
                   "fovea check needs --problem, e.g. --problem 'f32 b1 h4 s300 d64'",
                   {}};
    }
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(const Device device, device_.target());
    FOVEA_TRY(const std::unique_ptr<Executor> executor, device_.executor());
    std::vector<Problem> problems;
    for (const std::string& text : problems_) {
      FOVEA_TRY(problems.emplace_back(), parse_problem(text));
    }
    const Terminal& terminal = invocation.terminal;
    std::vector<RunReport> reports;
    for (const Problem& problem : problems) {
      terminal.progress(text::concat("check ", reports.size() + 1, "/", problems.size(), ": ",
                                     to_string(problem)));
      FOVEA_TRY(reports.emplace_back(), check(problem, config, device, *executor));
    }
    terminal.end_progress();
    switch (invocation.format) {
      case Format::json:
        terminal.write(check_json(reports));
        break;
      case Format::csv:
        terminal.write(to_csv(run_table(reports)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(check_table(reports)));
        break;
    }
    return std::all_of(reports.begin(), reports.end(), passed) ? kOk : kComparisonFailed;
  }

 private:
  Result<RunReport> check(const Problem& problem, const AttentionConfig& config, Device device,
                          Executor& executor) const {
    FOVEA_TRY(const RandomInputs inputs, make_random_inputs(problem));
    const uint64_t hash = inputs.input_hash();
    LayerRun run;
    run.config = config;
    run.layer.role = role_;
    run.layer.category = category_;
    run.tensors = inputs.tensors();
    run.options = call_options(problem);
    run.executor = &executor;
    run.device = device;
    FOVEA_TRY(RunReport report, run_layer(run));
    if (inputs.input_hash() != hash || !inputs.output_guards_intact()) {
      return Error{ErrorCode::internal,
                   text::concat(receipt_line(*report.receipt),
                                " wrote outside its outputs for: ", to_string(problem)),
                   {}};
    }
    namespace reference = backends::reference;
    const Problem called = report.problem;
    report.problem = problem;
    FOVEA_TRY(const reference::Agreement agreement,
              reference::agree_with_oracle(called, inputs.tensors(), executor, DataKind::random,
                                           kOracleFlops));
    report.oracle_rows = agreement.rows + agreement.rows_left_out;
    report.compare = comparison_report("out", agreement.out, agreement.tolerance.rel_l2,
                                       within(agreement.out, agreement.tolerance.rel_l2));
    if (problem.lse) {
      report.compare_lse = comparison_report("lse", agreement.lse, agreement.tolerance.lse,
                                             agreement.lse.nonfinite_mismatches == 0 &&
                                                 agreement.lse.max_abs <= agreement.tolerance.lse);
    }
    return report;
  }

  std::vector<std::string> problems_;
  ConfigArguments config_;
  std::string role_ = "self";
  std::string category_;
  DeviceArguments device_;
};

}  // namespace

std::unique_ptr<Verb> make_check() { return std::make_unique<CheckVerb>(); }

}  // namespace fovea::cli
