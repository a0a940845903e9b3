// Runs one attention layer under the clock and gathers what there is to say of it.
#pragma once

#include <string>

#include "fovea/fovea.hpp"
#include "tools/fovea/reports.hpp"

namespace fovea::cli {

struct LayerRun {
  AttentionConfig config;
  LayerOptions layer;
  AttentionTensors tensors;  // out and lse in place
  CallOptions options;
  Executor* executor = nullptr;
  int64_t repeat = 1;
  double warm_up_ms = 0;
};

// The options with what the configuration sets for this role put where the call says nothing.
CallOptions with_config(const CallOptions& options, const AttentionConfig& config,
                        const LayerOptions& layer);

// The options that make a call of the problem.
CallOptions call_options(const Problem& problem);

// Warms up for `warm_up_ms` and at least once, then runs `repeat` times. Everything but the
// comparison is filled in. Errors: those of the layer.
Result<RunReport> run_layer(const LayerRun& run);

// 4 * batch * heads * seq_q * seq_kv * head_dim and the like, per second, in 1e12.
double tflops(const Problem& problem, double milliseconds) noexcept;

}  // namespace fovea::cli
