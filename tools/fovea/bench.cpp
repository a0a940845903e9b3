// fovea bench: the speed of a backend, with baselines in the same run.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "fovea/version.hpp"
#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "src/simd/peak.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/baseline.hpp"
#include "tools/fovea/bench_plot.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/layer_run.hpp"
#include "tools/fovea/roofline_plot.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

// Problems up to this size are compared with the oracle, which takes about a second for it; on a
// device, so many of the rows.
constexpr double kOracleFlops = 2e9;
// Smaller still: the oracle is also timed as a baseline.
constexpr double kTinyFlops = 1e8;

// Before the first timed run of each case: an idle core takes some tenths of a second to reach the
// clock that it keeps.
constexpr double kWarmUpMs = 500;
// Two peaks around a case that differ by more than this were not measured at one clock.
constexpr double kPeakDrift = 0.03;

// The multiply-add peak of one core, in 1e12 operations per second; nothing where it cannot be
// measured or the measurement was disturbed.
std::optional<double> core_peak_tflops(std::string_view isa_name, DType dtype) {
  constexpr double kSeconds = 0.1;
  const bool bf16_products = dtype == kBF16;
  const std::optional<simd::Isa> isa = simd::parse_isa(isa_name);
  if (!isa || !simd::includes(simd::probe_isa(), *isa)) return std::nullopt;
  const simd::PeakLoop loop = simd::peak_loop(*isa, bf16_products);
  if (loop == nullptr) return std::nullopt;
  const simd::Peak peak = simd::measure_peak(loop, simd::clock_loop(*isa, bf16_products), kSeconds);
  if (!simd::at_limit(peak, *isa, bf16_products)) return std::nullopt;
  return peak.flops / 1e12;
}

// How fast memory is copied by all threads, read and written bytes together.
double copy_bytes_per_second(Executor& executor) {
  constexpr size_t kBytes = size_t{64} << 20;  // per thread: beyond every cache
  constexpr int kRounds = 5;
  const int64_t workers = executor.workers();
  std::vector<std::vector<char>> from(static_cast<size_t>(workers), std::vector<char>(kBytes, 1));
  std::vector<std::vector<char>> to = from;
  double best_ms = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    executor.parallel_for(workers, [&](int64_t i, int) {
      std::memcpy(to[static_cast<size_t>(i)].data(), from[static_cast<size_t>(i)].data(), kBytes);
    });
    const double took =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (round == 0 || took < best_ms) best_ms = took;
  }
  return best_ms > 0 ? 2e3 * static_cast<double>(kBytes) * static_cast<double>(workers) / best_ms
                     : 0;
}

// The peak around a case from those before and after it.
std::optional<double> steady_peak(std::optional<double> before, std::optional<double> after) {
  if (!before || !after) return std::nullopt;
  const double larger = std::max(*before, *after);
  if (larger - std::min(*before, *after) > kPeakDrift * larger) return std::nullopt;
  return larger;
}

std::string baselines_text(const std::vector<BaselineReport>& baselines) {
  std::vector<std::string> parts;
  for (const BaselineReport& baseline : baselines) {
    parts.push_back(text::concat(fixed(baseline.ratio, 1), "x ", baseline.name));
  }
  return parts.empty() ? "-" : text::join(parts);
}

// "12.1 MiB (dense 11.9 MiB)".
std::string memory_text(const BenchCase& row) {
  std::string out = byte_count(row.memory_bytes);
  for (const BaselineReport& baseline : row.baselines) {
    if (!baseline.memory_bytes) continue;
    out += text::concat(" (", baseline.name, " ", byte_count(*baseline.memory_bytes), ")");
  }
  return out;
}

Table table_of(const BenchReport& report) {
  Table table{{"problem", "backend", "path", "density", "median", "p10", "p90", "speed", "of peak",
               "memory", "rel_l2", "faster than"},
              {}};
  for (const BenchCase& row : report.cases) {
    const Table::Cell error =
        row.rel_l2 ? Table::Cell(scientific(*row.rel_l2), *row.pass ? Colour::good : Colour::bad)
                   : Table::Cell("-");
    table.rows.push_back({to_string(row.problem), name(row.backend), row.path,
                          row.density ? fixed(*row.density, 4) : "1",
                          duration(row.timing.median_ms), duration(row.timing.p10_ms),
                          duration(row.timing.p90_ms), flop_rate(*row.tflops_kept),
                          row.peak_fraction ? fixed(100 * *row.peak_fraction, 1) + " %" : "-",
                          memory_text(row), error, baselines_text(row.baselines)});
  }
  return table;
}

// One row per case and per baseline.
Table csv_of(const BenchReport& report) {
  Table table{{"problem", "backend", "path", "median_ms", "p10_ms", "p90_ms", "runs", "tflops",
               "tflops_kept", "density", "memory_bytes", "peak_fraction", "rel_l2", "pass",
               "baseline", "baseline_median_ms", "ratio"},
              {}};
  const auto figure = [](const std::optional<double>& value) {
    return value ? text::format_number(*value) : std::string();
  };
  for (const BenchCase& row : report.cases) {
    const std::vector<Table::Cell> start = {to_string(row.problem),
                                            name(row.backend),
                                            row.path,
                                            text::format_number(row.timing.median_ms),
                                            text::format_number(row.timing.p10_ms),
                                            text::format_number(row.timing.p90_ms),
                                            std::to_string(row.timing.runs_ms.size()),
                                            text::format_number(row.tflops),
                                            figure(row.tflops_kept),
                                            figure(row.density),
                                            std::to_string(row.memory_bytes),
                                            figure(row.peak_fraction),
                                            figure(row.rel_l2),
                                            row.pass ? (*row.pass ? "true" : "false") : ""};
    const auto add = [&](std::string baseline, std::string median, std::string ratio) {
      std::vector<Table::Cell> cells = start;
      for (std::string* cell : {&baseline, &median, &ratio}) cells.emplace_back(std::move(*cell));
      table.rows.push_back(std::move(cells));
    };
    if (row.baselines.empty()) add("", "", "");
    for (const BaselineReport& baseline : row.baselines) {
      add(baseline.name, text::format_number(baseline.median_ms),
          text::format_number(baseline.ratio));
    }
  }
  return table;
}

class BenchVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("--problem", "S", &problems_, "Problem string; may be given several times");
    config_.declare(flags);
    flags.add("--role", "NAME", &role_, "Role of the layer (self)");
    flags.add("--category", "NAME", &category_, "Category of the role");
    device_.declare(flags);
    flags.add("--repeat", "N", &repeat_, "Timed runs of each case (10)");
    flags.add("--no-baselines", "", &no_baselines_, "Time the backend alone");
    flags.add("--plot", "F.svg", &plot_, "Draw the result");
    flags.add("--roofline", "F.svg", &roofline_, "Draw speed against FLOPs per byte");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    if (problems_.empty()) {
      return Error{ErrorCode::invalid_argument,
                   "fovea bench needs --problem, e.g. --problem 'f32 b1 h12 s2048 d128'",
                   {}};
    }
    FOVEA_CHECK(at_least("--repeat", repeat_, 1));
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(const Device device, device_.target());
    FOVEA_TRY(const std::unique_ptr<Executor> executor, device_.executor());
    std::vector<Problem> problems;
    for (const std::string& text : problems_) {
      FOVEA_TRY(problems.emplace_back(), parse_problem(text));
    }
    BenchReport report;
    report.threads = executor->workers();
    const Terminal& terminal = invocation.terminal;
    for (const Problem& problem : problems) {
      terminal.progress(text::concat("bench ", report.cases.size() + 1, "/", problems.size(), ": ",
                                     to_string(problem)));
      FOVEA_TRY(BenchCase row, measure_case(problem, config, device, *executor, report));
      report.cases.push_back(std::move(row));
    }
    terminal.end_progress();
    if (plot_) FOVEA_CHECK(svg::save(*plot_, bench_plot(report)));
    if (roofline_) {
      if (report.device == "cpu") report.bytes_per_second = copy_bytes_per_second(*executor);
      FOVEA_CHECK(svg::save(*roofline_, roofline_plot(report)));
    }
    switch (invocation.format) {
      case Format::json:
        terminal.write(bench_json(report));
        break;
      case Format::csv:
        terminal.write(to_csv(csv_of(report)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(table_of(report)));
        break;
    }
    const bool failed = std::any_of(report.cases.begin(), report.cases.end(),
                                    [](const BenchCase& row) { return row.pass == false; });
    return failed ? kComparisonFailed : kOk;
  }

 private:
  Result<BenchCase> measure_case(const Problem& problem, const AttentionConfig& config,
                                 Device device, Executor& executor, BenchReport& report) const {
    FOVEA_TRY(const RandomInputs inputs, make_random_inputs(problem, {.poison = false}));
    LayerRun run;
    run.config = config;
    run.layer.role = role_;
    run.layer.category = category_;
    run.tensors = inputs.tensors();
    run.options = call_options(problem);
    run.executor = &executor;
    run.device = device;
    run.alignment = cuda::DeviceTensors::Alignment::best;
    run.warm_up_ms = kWarmUpMs;
    FOVEA_TRY(const RunReport warm, run_layer(run));
    const std::optional<double> peak_before = core_peak_tflops(warm.receipt->isa, problem.dtype);
    run.warm_up_ms = 0;
    run.repeat = repeat_;
    std::optional<validation::SparseCall> sparse;
    if (problem.sparse) {
      FOVEA_TRY(sparse, validation::make_sparse_call(problem, run.config, run.layer, run.tensors,
                                                     *run.executor));
      place(*sparse, run);
    }
    FOVEA_TRY(const RunReport measured, run_layer(run));
    const Receipt& receipt = *measured.receipt;
    const std::optional<double> peak_after = core_peak_tflops(receipt.isa, problem.dtype);
    report.device = receipt.device;
    report.isa = receipt.isa;
    BenchCase row;
    row.problem = problem;
    row.backend = receipt.backend;
    row.path = receipt.path;
    row.timing = measured.timing;
    row.tflops = measured.tflops;
    row.density = receipt.density;
    row.memory_bytes = receipt.workspace_bytes;
    if (sparse) row.memory_bytes += static_cast<size_t>(sparse->mask->memory_bytes());
    row.tflops_kept = receipt.density ? row.tflops * *receipt.density : row.tflops;
    if (const std::optional<double> peak = steady_peak(peak_before, peak_after)) {
      row.peak_tflops = *peak * executor.workers();
      row.peak_fraction = *row.tflops_kept / *row.peak_tflops;
    }
    // On a device the clock has stopped; on the CPU the oracle would cost as much as the run.
    if (device != kCpu || flop_count(problem) <= kOracleFlops) {
      namespace reference = backends::reference;
      FOVEA_TRY(const reference::Agreement agreement,
                reference::agree_with_oracle(
                    measured.problem, inputs.tensors(), executor, DataKind::random, kOracleFlops,
                    sparse && !receipt.fallback ? sparse->mask.get() : nullptr));
      row.rel_l2 = agreement.out.rel_l2;
      row.pass = agreement.pass;
    }
    if (no_baselines_) return row;
    if (sparse) {
      if (device != kCpu && sparse->given == nullptr && !sparse->state) {
        // The blocks that the call chose, given: what is left is the cost of choosing.
        LayerRun given = run;
        given.config = {};
        given.config.default_spec.emplace().backend = backend::BLOCK_SPARSE_ATTN;
        given.config.default_spec->block_sparse.emplace().selection = "mask";
        given.options.block_mask = sparse->mask;
        FOVEA_TRY(const RunReport without_choice, run_layer(given));
        add_baseline(row, "blocks_given", without_choice.timing);
      }
      // The same call without a pattern.
      run.config = {};
      run.config.default_spec.emplace().backend = backend::FLASH_ATTN;
      run.options.sparse_state = nullptr;
      run.options.block_mask = nullptr;
      FOVEA_TRY(const RunReport dense, run_layer(run));
      add_baseline(row, "dense", dense.timing);
      row.baselines.back().memory_bytes = dense.receipt->workspace_bytes;
      return row;
    }
    if (device != kCpu) {
      FOVEA_CHECK(add_device_baselines(run, row));
      return row;
    }
    if (flop_count(problem) <= kTinyFlops && row.backend != backend::REFERENCE) {
      run.config = {};
      run.config.default_spec.emplace().backend = backend::REFERENCE;
      FOVEA_TRY(const RunReport oracle, run_layer(run));
      add_baseline(row, "reference_float64", oracle.timing);
    }
    if (MaterialisedSoftmax::covers(problem, executor.workers())) {
      MaterialisedSoftmax baseline(problem, inputs.tensors(), executor);
      FOVEA_TRY(const Timing timing, measure(repeat_, 0, [&]() -> Status {
                  baseline.run();
                  return {};
                }));
      add_baseline(row, "materialised_softmax", timing);
    }
    return row;
  }

  // The other fast exact backends of the device, where they run the problem.
  static Status add_device_baselines(LayerRun run, BenchCase& row) {
    for (const BackendName other : {backend::CUDNN_ATTN, backend::FLASH_ATTN_2}) {
      if (other == row.backend) continue;
      run.config = {};
      run.config.default_spec.emplace().backend = other;
      const Result<RunReport> report = run_layer(run);
      if (!report && exit_code(report.error().code) == kUnsupported) continue;
      if (!report) return report.error();
      if (report->receipt->path == row.path) continue;
      FOVEA_TRY(const DeviceFacts facts, probe_cuda(run.device.index));
      const bool vendor = report->receipt->provider == "cudnn";
      const double median = report->timing.median_ms;
      row.baselines.push_back({name(other),
                               std::string(vendor ? facts.get("cudnn").value_or("") : version()),
                               median, median / row.timing.median_ms, std::nullopt});
    }
    return {};
  }

  static void add_baseline(BenchCase& row, std::string name, const Timing& timing) {
    row.baselines.push_back({std::move(name), version(), timing.median_ms,
                             timing.median_ms / row.timing.median_ms, std::nullopt});
  }

  std::vector<std::string> problems_;
  ConfigArguments config_;
  std::string role_ = "self";
  std::string category_;
  DeviceArguments device_;
  int64_t repeat_ = 10;
  bool no_baselines_ = false;
  std::optional<std::string> plot_;
  std::optional<std::string> roofline_;
};

}  // namespace

std::unique_ptr<Verb> make_bench() { return std::make_unique<BenchVerb>(); }

}  // namespace fovea::cli
