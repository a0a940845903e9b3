// fovea check: a backend against the float64 oracle, and a sparse one against dense attention.
#include <algorithm>

#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "src/validation/record.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/contract_report.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/layer_run.hpp"
#include "tools/fovea/quality.hpp"
#include "tools/fovea/report_table.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/tensors.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

// The oracle takes about a second for 2e9 on one core; of larger problems it computes some rows.
constexpr double kOracleFlops = 2e10;

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

bool passed(const RunReport& report) {
  return report.compare->pass && (!report.compare_lse || report.compare_lse->pass);
}

// "decay=1,0.5,0.2".
struct Sweep {
  std::string parameter;
  std::vector<std::string> values;
};

Result<Sweep> parse_sweep(const std::string& text) {
  const std::vector<std::string_view> sides = text::split(text, '=');
  if (sides.size() != 2 || sides[0].empty() || sides[1].empty()) {
    return usage_error("--sweep needs PARAMETER=VALUE,VALUE,..., e.g. decay=1,0.5,0.2, not " +
                       text::quote(text));
  }
  Sweep sweep{std::string(sides[0]), {}};
  for (const std::string_view value : text::split(sides[1], ',')) sweep.values.emplace_back(value);
  return sweep;
}

void set_parameter(SparsePattern& pattern, const std::string& key, const std::string& value) {
  for (auto& parameter : pattern.parameters) {
    if (parameter.first != key) continue;
    parameter.second = value;
    return;
  }
  pattern.parameters.emplace_back(key, value);
}

class CheckVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("--problem", "S", &problems_, "Problem string; may be given several times");
    flags.add("--input", "FILE", &input_, "Or tensors: a safetensors file with q, k and v");
    flags.add("--prefix", "P", &prefix_, "Literal start of their names, e.g. tap.attn.0.");
    flags.add("--sparse", "PATTERN", &sparse_, "Pattern for --input, e.g. radial(frames=3)");
    flags.add("--sweep", "KEY=V,V,...", &sweep_, "Check the pattern with each of these values");
    flags.add("--plot", "F.svg", &plot_, "Draw what a sweep leaves of the quality");
    config_.declare(flags);
    flags.add("--role", "NAME", &role_, "Role of the layer (self)");
    flags.add("--category", "NAME", &category_, "Category of the role");
    device_.declare(flags);
    flags.add("--contract", "", &contract_,
              "The validation run that makes a path supported on a device, in place of problems");
    flags.add("--record", "F", &record_, "With --contract: write the record to this file");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    if (contract_) return validate_path(invocation);
    if (record_) return usage_error("--record needs --contract");
    FOVEA_CHECK(check_flags());
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(const Device device, device_.target());
    FOVEA_TRY(const std::unique_ptr<Executor> executor, device_.executor());
    std::optional<SafetensorsFile> file;
    AttentionTensors given;
    std::vector<Problem> problems;
    if (input_) {
      FOVEA_TRY(file, SafetensorsFile::open(*input_));
      FOVEA_TRY(given, attention_inputs(*file, *input_, prefix_));
      FOVEA_TRY(problems.emplace_back(), describe(given, {}));
      if (sparse_) {
        FOVEA_TRY(const Problem pattern, parse_problem("f32 b1 h1 s1 d1 sparse=" + *sparse_));
        problems.back().sparse = pattern.sparse;
      }
    }
    for (const std::string& text : problems_) {
      FOVEA_TRY(problems.emplace_back(), parse_problem(text));
    }
    std::optional<Sweep> sweep;
    if (sweep_) {
      FOVEA_TRY(sweep, parse_sweep(*sweep_));
      FOVEA_CHECK(expand(*sweep, problems));
    }
    const Terminal& terminal = invocation.terminal;
    std::vector<RunReport> reports;
    for (const Problem& problem : problems) {
      terminal.progress(text::concat("check ", reports.size() + 1, "/", problems.size(), ": ",
                                     to_string(problem)));
      FOVEA_TRY(reports.emplace_back(),
                input_ ? check_tensors(problem, given, config, device, *executor)
                       : check_random(problem, config, device, *executor));
    }
    terminal.end_progress();
    if (plot_) FOVEA_CHECK(draw(*sweep, reports));
    switch (invocation.format) {
      case Format::json:
        terminal.write(check_json(reports));
        break;
      case Format::csv:
        terminal.write(to_csv(run_table(reports)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(check_table(reports)));
        if (std::any_of(reports.begin(), reports.end(),
                        [](const RunReport& report) { return report.quality.has_value(); })) {
          terminal.write("\n" + terminal.aligned(quality_table(reports)));
        }
        break;
    }
    return std::all_of(reports.begin(), reports.end(), passed) ? kOk : kComparisonFailed;
  }

 private:
  Result<ExitCode> validate_path(const Invocation& invocation) const {
    if (!problems_.empty() || input_) {
      return usage_error("--contract has problems of its own; leave --problem and --input out");
    }
    if (record_) FOVEA_CHECK(check_record_file(*record_));
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(const std::unique_ptr<validation::RunDevice> device, open_device());
    FOVEA_TRY(const std::unique_ptr<Executor> executor, device_.executor());
    LayerOptions layer;
    layer.role = role_;
    layer.category = category_;
    const Terminal& terminal = invocation.terminal;
    const auto progress = [&](size_t done, size_t total, const std::string& problem) {
      terminal.progress(text::concat("contract ", done + 1, "/", total, ": ", problem));
    };
    FOVEA_TRY(const validation::ContractRun run,
              validation::run_contract(config, layer, *device, *executor, progress));
    terminal.end_progress();
    const std::string record = validation::record_text(run);
    switch (invocation.format) {
      case Format::json:
        terminal.write(record);
        break;
      case Format::csv:
        terminal.write(to_csv(contract_table(run)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(contract_table(run)) + "\n" + contract_summary(run));
        break;
    }
    if (record_) FOVEA_CHECK(write_record(*record_, record));
    if (run.path.empty()) return kUnsupported;
    return run.pass() ? kOk : kComparisonFailed;
  }

  // Platforms that the program has no code for run through what a plugin gives.
  Result<std::unique_ptr<validation::RunDevice>> open_device() const {
    const std::string word = text::fold(device_.device);
    if (parse_device(word)) FOVEA_CHECK(device_.target());
    return validation::open_device(word);
  }

  Status check_flags() const {
    if (problems_.empty() && !input_) {
      return usage_error("fovea check needs --problem, e.g. --problem 'f32 b1 h4 s300 d64'");
    }
    if (!problems_.empty() && input_) return usage_error("give either --problem or --input");
    if (sparse_ && !input_) {
      return usage_error("--sparse belongs to --input; a problem string says sparse=...");
    }
    if (plot_ && !sweep_) return usage_error("--plot needs --sweep");
    return {};
  }

  // Every problem once for each value.
  static Status expand(const Sweep& sweep, std::vector<Problem>& problems) {
    std::vector<Problem> all;
    for (const Problem& problem : problems) {
      if (!problem.sparse) return usage_error("--sweep needs a sparse pattern to vary");
      for (const std::string& value : sweep.values) {
        set_parameter(*all.emplace_back(problem).sparse, sweep.parameter, value);
        FOVEA_CHECK(validate(all.back()));
      }
    }
    problems = std::move(all);
    return {};
  }

  Status draw(const Sweep& sweep, const std::vector<RunReport>& reports) const {
    std::vector<SweepPoint> points;
    for (size_t n = 0; n < reports.size(); ++n) {
      if (!reports[n].quality) continue;
      points.push_back({sweep.values[n % sweep.values.size()], *reports[n].quality});
    }
    return svg::save(*plot_,
                     quality_plot(sweep.parameter, points, to_string(reports.front().problem)));
  }

  LayerRun layer_run(const Problem& problem, const AttentionTensors& tensors,
                     const AttentionConfig& config, Device device, Executor& executor) const {
    LayerRun run;
    run.config = config;
    run.layer.role = role_;
    run.layer.category = category_;
    run.tensors = tensors;
    run.options = call_options(problem);
    run.executor = &executor;
    run.device = device;
    return run;
  }

  Result<RunReport> check_random(const Problem& problem, const AttentionConfig& config,
                                 Device device, Executor& executor) const {
    FOVEA_TRY(const RandomInputs inputs, make_random_inputs(problem));
    const uint64_t hash = inputs.input_hash();
    FOVEA_TRY(RunReport report,
              check(problem, layer_run(problem, inputs.tensors(), config, device, executor),
                    DataKind::random));
    if (inputs.input_hash() != hash || !inputs.output_guards_intact()) {
      return Error{ErrorCode::internal,
                   text::concat(receipt_line(*report.receipt),
                                " wrote outside its outputs for: ", to_string(problem)),
                   {}};
    }
    return report;
  }

  Result<RunReport> check_tensors(const Problem& problem, const AttentionTensors& given,
                                  const AttentionConfig& config, Device device,
                                  Executor& executor) const {
    LayerRun run = layer_run(problem, given, config, device, executor);
    FOVEA_TRY(const CallOutputs outputs, allocate_outputs(run.tensors, run.options));
    outputs.place(run.tensors);
    return check(problem, std::move(run), DataKind::structured);
  }

  static Result<RunReport> check(const Problem& problem, LayerRun run, DataKind data) {
    std::optional<validation::SparseCall> sparse;
    if (problem.sparse) {
      FOVEA_TRY(sparse, validation::make_sparse_call(problem, run.config, run.layer, run.tensors,
                                                     *run.executor));
      place(*sparse, run);
    }
    FOVEA_TRY(RunReport report, run_layer(run));
    namespace reference = backends::reference;
    const Problem called = report.problem;
    report.problem = problem;
    const bool kept = sparse && !report.receipt->fallback;
    FOVEA_TRY(const reference::Agreement agreement,
              reference::agree_with_oracle(called, run.tensors, *run.executor, data, kOracleFlops,
                                           kept ? sparse->mask.get() : nullptr));
    report.oracle_rows = agreement.rows + agreement.rows_left_out;
    report.compare = comparison_report("out", agreement.out, agreement.tolerance.rel_l2,
                                       within(agreement.out, agreement.tolerance.rel_l2));
    if (called.lse) {
      report.compare_lse = comparison_report("lse", agreement.lse, agreement.tolerance.lse,
                                             agreement.lse.nonfinite_mismatches == 0 &&
                                                 agreement.lse.max_abs <= agreement.tolerance.lse);
    }
    if (kept && run.device == kCpu) {
      FOVEA_TRY(report.quality, measure_quality(run));
    }
    return report;
  }

  std::vector<std::string> problems_;
  std::optional<std::string> input_, sparse_, sweep_, plot_;
  std::string prefix_;
  ConfigArguments config_;
  std::string role_ = "self";
  std::string category_;
  DeviceArguments device_;
  bool contract_ = false;
  std::optional<std::string> record_;
};

}  // namespace

std::unique_ptr<Verb> make_check() { return std::make_unique<CheckVerb>(); }

}  // namespace fovea::cli
