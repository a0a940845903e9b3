#include "tools/fovea/layer_run.hpp"

#include "src/core/text.hpp"
#include "src/cuda_device/stream.hpp"
#include "tools/fovea/report_table.hpp"

namespace fovea::cli {

namespace {

TensorReport report_of(const TensorView& view) {
  return {view.dtype, {view.shape.begin(), view.shape.begin() + view.rank}};
}

// Runs copies of the tensors on run.device and brings the outputs back.
Status run_on_device(const LayerRun& run, const Attention& layer, CallOptions options,
                     RunReport& report) {
  FOVEA_TRY(const cuda::OwnedStream stream, cuda::OwnedStream::create(run.device));
  options.stream = stream.get();
  FOVEA_TRY(const cuda::DeviceTensors copies,
            cuda::DeviceTensors::upload(run.tensors, run.device, stream.get(), run.alignment));
  FOVEA_TRY(report.problem, describe(copies.tensors(), options));
  FOVEA_TRY(report.timing, measure_on_stream(run.repeat, run.device, stream.get(), [&]() -> Status {
              FOVEA_TRY(report.receipt, layer.run(copies.tensors(), options));
              return {};
            }));
  FOVEA_CHECK(copies.download(run.tensors));
  FOVEA_TRY(const std::string damage, copies.damage(run.tensors));
  if (damage.empty()) return {};
  return Error{ErrorCode::internal, text::concat(receipt_line(*report.receipt), ": ", damage), {}};
}

}  // namespace

ComparisonReport comparison_report(std::string tensor, const Comparison& comparison,
                                   double tolerance, bool pass) {
  return {std::move(tensor), comparison.max_abs,
          comparison.rel_l1, comparison.rel_l2,
          comparison.cosine, comparison.nonfinite_mismatches,
          tolerance,         pass};
}

CallOptions with_config(const CallOptions& options, const AttentionConfig& config,
                        const LayerOptions& layer) {
  CallOptions merged = options;
  const ResolvedSpec resolved = config.resolve(layer.role, layer.category);
  if (resolved.spec == nullptr) return merged;
  if (!merged.scale) merged.scale = resolved.spec->scale;
  if (!merged.is_causal) merged.is_causal = resolved.spec->is_causal;
  return merged;
}

CallOptions call_options(const Problem& problem) {
  CallOptions options;
  options.input_layout = problem.layout;
  options.output_layout = problem.out_layout;
  options.scale = problem.scale;
  options.is_causal = problem.causal;
  options.window = problem.window;
  options.return_lse = problem.lse;
  options.out_dtype = problem.out_dtype;
  options.max_seqlen_q = problem.max_document_q;
  options.max_seqlen_kv = problem.max_document_kv;
  return options;
}

void place(const validation::SparseCall& sparse, LayerRun& run) {
  run.config = sparse.config;
  run.options.sparse_state = sparse.state ? &*sparse.state : nullptr;
  run.options.block_mask = sparse.given;
}

double tflops(const Problem& problem, double milliseconds) noexcept {
  return milliseconds > 0 ? flop_count(problem) / (milliseconds * 1e9) : 0;
}

Result<RunReport> run_layer(const LayerRun& run) {
  CallOptions options = with_config(run.options, run.config, run.layer);
  FOVEA_TRY(const Attention layer, Attention::create(run.layer, run.config, run.executor));
  RunReport report;
  FOVEA_TRY(report.problem, describe(run.tensors, options));
  if (run.device.type == DeviceType::cpu) {
    FOVEA_TRY(report.timing, measure(run.repeat, run.warm_up_ms, [&]() -> Status {
                FOVEA_TRY(report.receipt, layer.run(run.tensors, options));
                return {};
              }));
  } else {
    // A device cannot be asked for the longest document without waiting for it.
    options.max_seqlen_q = report.problem.max_document_q;
    options.max_seqlen_kv = report.problem.max_document_kv;
    FOVEA_CHECK(run_on_device(run, layer, options, report));
  }
  const ResolvedSpec resolved = run.config.resolve(run.layer.role, run.layer.category);
  if (resolved.spec != nullptr) report.strictness = resolved.spec->strictness;
  report.role = run.layer.role;
  report.category = run.layer.category;
  report.source = resolved.spec != nullptr ? resolved.source : "platform default";
  report.threads = run.executor != nullptr ? run.executor->workers() : 1;
  report.tflops = tflops(report.problem, report.timing.median_ms);
  report.out = report_of(run.tensors.out);
  if (run.tensors.lse.present()) report.lse = report_of(run.tensors.lse);
  return report;
}

}  // namespace fovea::cli
