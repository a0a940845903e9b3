// One file of data/models, or a user's own: the attention calls of a model, sizes left open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/model_preset.hpp"

namespace fovea::platform {

// What the tokens of a sequence stand for.
enum class Tokens : uint8_t {
  grid,    // the video or image, one token per patch
  text,    // the prompt
  image,   // an embedded reference image
  cached,  // earlier chunks of the grid
};

// One kind of attention call; its sequences are the sums of these.
struct RoleData {
  std::string role;
  std::string category;
  std::vector<Tokens> q;
  std::vector<Tokens> kv;
  MaskKind mask = MaskKind::none;
  int64_t layers = 0;
};

// A number of frames that a streaming model makes at a time.
struct ChunkData {
  std::string what;  // "the first chunk"
  int64_t frames = 0;
  int64_t latent_frames = 0;
  int64_t cached = 0;  // chunks of this size in its key/value cache
};

struct ModelData {
  ModelPreset preset;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t patch = 0;         // pixels per token, per axis
  int64_t window = 1;        // tokens per axis that only go together
  int64_t frame_stride = 0;  // frames per latent frame after the first; 0: an image, or chunks
  std::vector<ChunkData> chunks;
  int64_t token_multiple = 1;  // every part of a sequence is padded to a multiple of this
  int64_t text = 0;
  int64_t image = 0;
  std::vector<RoleData> roles;
  bool has_sources = false;
};

// Everything wrong is collected. Error invalid_config; `origin` names the text in it.
Result<ModelData> parse_model(std::string_view json, std::string_view origin);

// The calls at a size; 0 takes the default. Error invalid_argument names the rule.
Result<ModelDescription> describe(const ModelData& model, ModelSize size);

}  // namespace fovea::platform
