// Runs one attention layer under the clock and gathers what there is to say of it.
#pragma once

#include <string>

#include "fovea/fovea.hpp"
#include "src/cuda_device/device_tensors.hpp"
#include "src/validation/sparse_call.hpp"
#include "tools/fovea/reports.hpp"

namespace fovea::cli {

struct LayerRun {
  AttentionConfig config;
  LayerOptions layer;
  AttentionTensors tensors;  // in host memory, out and lse in place
  CallOptions options;
  Executor* executor = nullptr;
  int64_t repeat = 1;
  Device device = kCpu;  // elsewhere: copies of the tensors run there, and the outputs come back
  cuda::DeviceTensors::Alignment alignment = cuda::DeviceTensors::Alignment::kept;  // of the copies
  double warm_up_ms = 0;
};

// The options with what the configuration sets for this role put where the call says nothing.
CallOptions with_config(const CallOptions& options, const AttentionConfig& config,
                        const LayerOptions& layer);

// The options that make a call of the problem.
CallOptions call_options(const Problem& problem);

// Makes the run one of a sparse call, which must outlive it.
void place(const validation::SparseCall& sparse, LayerRun& run);

// Warms up for `warm_up_ms` and at least once, then runs `repeat` times. Everything but the
// comparison is filled in. On a device the time is that of the stream, without the copies. Errors:
// those of the layer; internal when something but the outputs was written on a device.
Result<RunReport> run_layer(const LayerRun& run);

// 4 * batch * heads * seq_q * seq_kv * head_dim and the like, per second, in 1e12.
double tflops(const Problem& problem, double milliseconds) noexcept;

}  // namespace fovea::cli
