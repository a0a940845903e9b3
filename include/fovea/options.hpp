// Typed option blocks of an AttentionSpec. A block belongs to the backends that the ownership table
// names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/backend_name.hpp"

namespace fovea {

// Element types of quantised attention: float16 | bfloat16 | int8 | fp8_e4m3.
struct QuantOptions {
  std::optional<std::string> dtype_qk;
  std::optional<std::string> dtype_vo;
  int64_t q_block_size = 1;   // 1, 4 or 16
  int64_t k_block_size = 16;  // 1, 4 or 16
  std::optional<std::string> flashinfer_backend;

  bool operator==(const QuantOptions&) const = default;
};

struct AiterQuantOptions {
  std::string format = "fp8";  // bf16, fp8, i8fp8, mxfp8, mxfp4, mxfp6, f6f4, f8f6

  bool operator==(const AiterQuantOptions&) const = default;
};

// What the checkpoint says of one layer: factor = a * exp(b * target_sparsity), or the pattern that
// keeps the layer dense.
struct LayerCalibration {
  double a = 0;
  double b = 0;
  std::string ignored_by;

  bool operator==(const LayerCalibration&) const = default;
};

// threshold xor target_sparsity; the gate is a normalised timestep in [0, 1].
struct SkipSoftmaxOptions {
  std::optional<double> target_sparsity;
  std::optional<double> threshold;
  double disabled_until_timestep = 0.0;
  // For target_sparsity. Comes from the checkpoint (calibrate(), fovea/calibration.hpp), not from a
  // configuration, and is not part of its JSON.
  std::optional<LayerCalibration> calibration;

  bool operator==(const SkipSoftmaxOptions&) const = default;
};

struct BlockSparseOptions {
  double sparsity = 0.8;                 // [0, 1]
  int64_t start_step = 0;                // the first N steps are dense
  int64_t end_step = 0;                  // the last N steps are dense
  std::string precision = "bf16";        // bf16, fp8, mix
  std::vector<int64_t> skip_layers;      // dense layers
  std::string selection = "block_topk";  // mask, block_topk
  int64_t block_size = 128;              // 64 or 128
  int64_t protected_prefix = 0;          // first keys, such as text, that block_topk always keeps

  bool operator==(const BlockSparseOptions&) const = default;
};

struct RadialOptions {
  int64_t dense_timesteps = 40;  // counted from the first denoising step
  int64_t dense_layers = 0;
  double decay_factor = 1.0;    // finite, > 0
  int64_t block_size = 128;     // 64 or 128
  std::string rule = "radial";  // radial, authors, telefuser
  BackendName dense_backend = backend::FLASH_ATTN;
  bool use_sage_attention = false;

  bool operator==(const RadialOptions&) const = default;
};

struct LocalSparseOptions {
  int64_t dense_timesteps = 40;
  int64_t dense_layers = 0;
  int64_t local_window_size = 6;  // total width in blocks per axis
  int64_t block_size = 128;
  std::optional<int64_t> topk;
  BackendName dense_backend = backend::FLASH_ATTN;
  bool use_sage_attention = false;

  bool operator==(const LocalSparseOptions&) const = default;
};

}  // namespace fovea
