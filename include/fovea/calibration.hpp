// Skip-softmax: what a checkpoint says of the sparsity of its layers, and the threshold that a
// layer gets from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"

namespace fovea {

// The calibration of one transformer of a checkpoint: factor = a * exp(b * target_sparsity).
struct ExpertCalibration {
  double a = 0;  // finite, > 0
  double b = 0;  // finite
  // Globs (*, ?, [abc], [!abc]) of layers that stay dense; the layers below a match do too.
  std::vector<std::string> ignore;
  // What the checkpoint recommends; a configuration that wants it says so itself.
  std::optional<double> target_sparsity;
  std::optional<double> disabled_until_timestep;

  bool operator==(const ExpertCalibration&) const = default;
};

// By transformer, as layer names begin: "transformer", "transformer_2". The key "" is for every
// layer.
struct SkipSoftmaxCalibration {
  std::map<std::string, ExpertCalibration> experts;

  bool operator==(const SkipSoftmaxCalibration&) const = default;
};

// Reads a transformer's config.json of a checkpoint, the sparse_attention_config in it, or a map
// from transformers to either. Other keys of a config.json are left alone; inside
// sparse_attention_config unknown keys are errors. Error invalid_config with every problem: another
// formula than a*exp(b*target_sparsity), coefficients missing or out of range, no skip_softmax
// group or several. Pure; thread-safe.
FOVEA_API Result<SkipSoftmaxCalibration> parse_calibration(std::string_view json);

// The configuration of one layer: entries with a target_sparsity get the coefficients of the
// layer's transformer (the longest that the name begins with), or the pattern that keeps the layer
// dense. Entries stay as they are when no transformer fits; then resolve refuses them. Names are
// taken without the wrappers of compilers ("_orig_mod."). Pure; thread-safe.
FOVEA_API AttentionConfig calibrate(AttentionConfig config,
                                    const SkipSoftmaxCalibration& calibration,
                                    std::string_view layer);

// Why key tiles are not skipped.
enum class SkipState : uint8_t {
  skips,
  off,               // neither threshold nor target_sparsity
  uncalibrated,      // target_sparsity without a calibration of this layer
  ignored_layer,     // the calibration keeps this layer dense
  gated,             // the timestep is above disabled_until_timestep
  unknown_timestep,  // there is a gate and the call does not say the timestep: dense
};
FOVEA_API std::string_view name(SkipState state) noexcept;

struct SkipDecision {
  SkipState state = SkipState::off;
  // A tile is skipped when it cannot raise a row above threshold = factor / keys. What is known of
  // both, whatever the state.
  std::optional<double> factor;
  std::optional<double> threshold;
};

// What applies to a call with so many keys (0: not known) at a timestep, normalised to 1 for pure
// noise and 0 for none. Pure; thread-safe.
FOVEA_API SkipDecision decide_skip(const SkipSoftmaxOptions& options, int64_t seq_kv,
                                   std::optional<double> timestep) noexcept;

}  // namespace fovea
