// Published diffusion transformers as data: which attention calls they make, without any weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// What is generated. 0 takes the preset's default. Height and width in pixels of the result; frames
// of video before compression in time, 1 for an image.
struct ModelSize {
  int64_t height = 0;
  int64_t width = 0;
  int64_t frames = 0;

  bool operator==(const ModelSize&) const = default;
};

// One kind of attention call of a model, at one size and batch 1.
struct ModelRole {
  std::string role;      // e.g. "wan.self"
  std::string category;  // "self", "cross" or "joint"
  int64_t heads = 0;     // query heads; every listed model has as many key/value heads
  int64_t head_dim = 0;
  int64_t seq_q = 0;
  int64_t seq_kv = 0;
  MaskKind mask = MaskKind::none;  // none, or keys: a key mask when a batch is ragged
  int64_t layers = 0;              // blocks that make this call, once per forward pass each
  // Tokens are a video grid in frame order: latent frames of tokens_per_frame each; 0 otherwise.
  int64_t latent_frames = 0;
  int64_t tokens_per_frame = 0;

  bool operator==(const ModelRole&) const = default;
};

// A model at one size.
struct ModelDescription {
  std::string name;
  ModelSize size;
  int64_t layers = 0;  // transformer blocks of one forward pass
  int64_t steps = 0;   // usual number of denoising steps
  // No call of the model ever has a mask. Unknown counts as false.
  bool mask_free = false;
  std::vector<ModelRole> roles;
};

// A file of data/models, which is part of the library.
struct ModelPreset {
  std::string name;
  std::string summary;
  ModelSize size;  // the default
  int64_t layers = 0;
  int64_t steps = 0;
  bool mask_free = false;
};

// All presets, in a fixed order. Thread-safe; static storage.
FOVEA_API const std::vector<ModelPreset>& model_presets();

// The attention calls of a model at a size. `name` is case-insensitive. Errors invalid_argument: an
// unknown name lists the presets and suggests the nearest; a size the model cannot make names the
// rule. Thread-safe.
FOVEA_API Result<ModelDescription> describe_model(std::string_view name, ModelSize size = {});

// The same for a model of one's own in the form of data/models (docs/presets.md). `origin` names
// the text in messages. Errors: invalid_config for everything wrong with the text, unknown keys
// included; invalid_argument for the size. Thread-safe.
FOVEA_API Result<ModelDescription> describe_model_json(std::string_view json,
                                                       std::string_view origin,
                                                       ModelSize size = {});

}  // namespace fovea
