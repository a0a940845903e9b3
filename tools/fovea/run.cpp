// fovea run: attention on tensors from a file.
#include <cmath>
#include <filesystem>

#include "src/core/compare.hpp"
#include "src/core/text.hpp"
#include "src/core/tolerance.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/layer_run.hpp"
#include "tools/fovea/report_table.hpp"
#include "tools/fovea/tensors.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

bool passed(const std::optional<ComparisonReport>& report) { return !report || report->pass; }

class RunVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("--input", "FILE", &input_, "safetensors file with q, k and v");
    flags.add("--prefix", "P", &prefix_, "Literal start of their names, e.g. tap.attn.0.");
    config_.declare(flags);
    flags.add("--role", "NAME", &layer_.role, "Role of the layer (self)");
    flags.add("--category", "NAME", &layer_.category, "Category of the role");
    flags.add("--layout", "NAME", &layout_, "bshd or bhsd; packed with cu_seqlens_q (bshd)");
    flags.add("--causal", "", &causal_, "Hide the keys after each query");
    flags.add("--window", "LEFT,RIGHT", &window_, "Keys seen before and after; -1 is unbounded");
    flags.add("--scale", "X", &scale_, "Factor of the scores (1/sqrt of the head size)");
    metadata_.declare(flags);
    device_.declare(flags);
    flags.add("--lse", "", &lse_, "Also compute the log-sum-exp");
    flags.add("--repeat", "N", &repeat_, "Timed runs (5)");
    flags.add("--expect", "NAME", &expect_, "Compare the output with this tensor of the input");
    flags.add("--expect-lse", "NAME", &expect_lse_, "Compare the log-sum-exp with this tensor");
    flags.add("--tolerance", "X", &tolerance_, "Largest relative L2 error that passes");
    flags.add("--output", "FILE", &output_, "Write out, and lse if computed, as safetensors");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    FOVEA_CHECK(check_flags());
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(const Device device, device_.target());
    FOVEA_TRY(const std::unique_ptr<Executor> executor, device_.executor());
    FOVEA_TRY(const SafetensorsFile file, SafetensorsFile::open(input_));
    LayerRun run;
    run.config = config;
    run.layer = layer_;
    run.executor = executor.get();
    run.device = device;
    run.alignment = cuda::DeviceTensors::Alignment::best;
    run.repeat = repeat_;
    FOVEA_TRY(run.tensors, attention_inputs(file, input_, prefix_));
    FOVEA_TRY(const CallOptions options, call_options(run.tensors));
    run.options = with_config(options, config, layer_);
    FOVEA_TRY(const std::optional<AttentionMetadata> metadata, metadata_.build());
    if (metadata) run.options.metadata = &*metadata;
    std::optional<FoundTensor> expected;
    std::optional<FoundTensor> expected_lse;
    if (expect_) {
      FOVEA_TRY(expected, find_tensor(file, prefix_, *expect_));
    }
    if (expect_lse_) {
      FOVEA_TRY(expected_lse, find_tensor(file, prefix_, *expect_lse_));
    }
    FOVEA_TRY(const CallOutputs outputs, allocate_outputs(run.tensors, run.options));
    outputs.place(run.tensors);
    FOVEA_TRY(RunReport report, run_layer(run));
    if (expected) {
      FOVEA_TRY(report.compare, compare_output(*expected, run.tensors.out, report.problem));
    }
    if (expected_lse) {
      FOVEA_TRY(report.compare_lse, compare_lse(*expected_lse, run.tensors.lse, report.problem));
    }
    if (output_) {
      std::vector<NamedTensor> tensors = {{"out", run.tensors.out}};
      if (lse_) tensors.push_back({"lse", run.tensors.lse});
      FOVEA_CHECK(write_safetensors(*output_, tensors));
      report.output_file = output_;
    }
    print(report, invocation);
    return passed(report.compare) && passed(report.compare_lse) ? kOk : kComparisonFailed;
  }

 private:
  Status check_flags() {
    if (input_.empty()) {
      return usage_error("fovea run needs --input, a safetensors file with q, k and v");
    }
    FOVEA_CHECK(at_least("--repeat", repeat_, 1));
    if (tolerance_ && !expect_) return usage_error("--tolerance needs --expect");
    if (tolerance_ && *tolerance_ < 0) {
      return usage_error(
          text::concat("--tolerance must be at least 0, not ", text::format_number(*tolerance_)));
    }
    std::error_code ignored;
    if (output_ && std::filesystem::equivalent(*output_, input_, ignored)) {
      return usage_error("--output is the input file; name another one");
    }
    lse_ = lse_ || expect_lse_;
    return {};
  }

  Result<CallOptions> call_options(const AttentionTensors& tensors) const {
    CallOptions options;
    options.return_lse = lse_;
    options.scale = scale_;
    if (causal_) options.is_causal = true;
    if (window_) {
      FOVEA_TRY(options.window, parse_window(*window_));
    }
    const bool packed = tensors.cu_seqlens_q.present();
    options.input_layout = packed ? Layout::packed : Layout::bshd;
    if (layout_) {
      const std::optional<Layout> layout = parse_layout(*layout_);
      if (!layout) {
        return usage_error("--layout " + text::quote(*layout_) +
                           " is not a layout (accepted: bshd, bhsd, packed)");
      }
      options.input_layout = *layout;
    }
    return options;
  }

  static Status same_shape(const FoundTensor& expected, const TensorView& got) {
    if (expected.view.rank == got.rank && expected.view.shape == got.shape) return {};
    return Error{ErrorCode::invalid_tensor,
                 text::concat("the expected tensor ", text::quote(expected.name), " is ",
                              to_string(expected.view), ", but the result is ", to_string(got)),
                 {}};
  }

  // Captured values are not noise, so the bound is that of structured data.
  Result<ComparisonReport> compare_output(const FoundTensor& expected, const TensorView& out,
                                          const Problem& problem) const {
    FOVEA_CHECK(same_shape(expected, out));
    const Comparison comparison = compare(out, expected.view);
    const double bound = tolerance_.value_or(
        exact_tolerance(problem.dtype, problem.out_dtype, DataKind::structured, 0).rel_l2);
    return comparison_report(expected.name, comparison, bound, within(comparison, bound));
  }

  static Result<ComparisonReport> compare_lse(const FoundTensor& expected, const TensorView& lse,
                                              const Problem& problem) {
    FOVEA_CHECK(same_shape(expected, lse));
    const Comparison comparison = compare(lse, expected.view);
    const double bound =
        exact_tolerance(problem.dtype, problem.out_dtype, DataKind::structured, 0).lse;
    return comparison_report(expected.name, comparison, bound,
                             comparison.nonfinite_mismatches == 0 && comparison.max_abs <= bound);
  }

  static void print(const RunReport& report, const Invocation& invocation) {
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json:
        terminal.write(run_json(report));
        break;
      case Format::csv:
        terminal.write(to_csv(run_table({report})));
        break;
      case Format::table:
        terminal.write(terminal.aligned(run_fields(report)));
        break;
    }
  }

  std::string input_;
  std::string prefix_;
  ConfigArguments config_;
  LayerOptions layer_;
  MetadataArguments metadata_;
  DeviceArguments device_;
  std::optional<std::string> layout_, window_, expect_, expect_lse_, output_;
  std::optional<double> scale_, tolerance_;
  int64_t repeat_ = 5;
  bool causal_ = false;
  bool lse_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_run() { return std::make_unique<RunVerb>(); }

}  // namespace fovea::cli
