#include "fovea/model_preset.hpp"

#include <iterator>
#include <optional>
#include <span>
#include <string>

#include "src/core/text.hpp"

namespace fovea {
namespace {

// Where the length of a sequence comes from.
enum class Tokens : uint8_t {
  grid,             // the video or image, one token per patch
  text,             // the prompt
  image,            // embedded reference image
  joint,            // text and image together
  padded_grid,      // grid, rounded up to a multiple of 32
  padded_text,      // text, likewise
  padded_joint,     // both, each rounded up
  grid_and_cached,  // the chunk and the three chunks before it
};

struct RoleRow {
  std::string_view role;
  std::string_view category;
  Tokens q;
  Tokens kv;
  MaskKind mask;
  int64_t layers;
};

struct ModelRow {
  ModelPreset preset;
  int64_t heads;
  int64_t patch;         // pixels per token, per axis
  int64_t frame_stride;  // frames per latent frame after the first; 0: an image
  int64_t text;
  int64_t image;
  std::span<const RoleRow> roles;
};

constexpr int64_t kHeadDim = 128;
constexpr int64_t kWanText = 512;    // the prompt is padded to this and attended in full
constexpr int64_t kImageText = 128;  // a usual prompt
constexpr int64_t kClipImage = 257;
constexpr int64_t kFlashVsrFirst = 25;  // frames of the first chunk, which has nothing cached
constexpr int64_t kFlashVsrNext = 8;    // frames of every later chunk
constexpr int64_t kFlashVsrCached = 3;  // chunks kept in the key/value cache

constexpr RoleRow kWan30[] = {
    {"wan.self", "self", Tokens::grid, Tokens::grid, MaskKind::none, 30},
    {"wan.cross.text", "cross", Tokens::grid, Tokens::text, MaskKind::none, 30},
};
constexpr RoleRow kWan40[] = {
    {"wan.self", "self", Tokens::grid, Tokens::grid, MaskKind::none, 40},
    {"wan.cross.text", "cross", Tokens::grid, Tokens::text, MaskKind::none, 40},
};
constexpr RoleRow kWanImage40[] = {
    {"wan.self", "self", Tokens::grid, Tokens::grid, MaskKind::none, 40},
    {"wan.cross.text", "cross", Tokens::grid, Tokens::text, MaskKind::none, 40},
    {"wan.cross.image", "cross", Tokens::grid, Tokens::image, MaskKind::none, 40},
};
constexpr RoleRow kQwen[] = {
    {"qwen.joint", "joint", Tokens::joint, Tokens::joint, MaskKind::keys, 60},
};
constexpr RoleRow kZImage[] = {
    {"zimage.noise_refiner", "self", Tokens::padded_grid, Tokens::padded_grid, MaskKind::keys, 2},
    {"zimage.context_refiner", "self", Tokens::padded_text, Tokens::padded_text, MaskKind::keys, 2},
    {"zimage.joint", "joint", Tokens::padded_joint, Tokens::padded_joint, MaskKind::keys, 30},
};
constexpr RoleRow kFlashVsr[] = {
    {"flashvsr.self", "self", Tokens::grid, Tokens::grid_and_cached, MaskKind::none, 30},
    {"flashvsr.cross.text", "cross", Tokens::grid, Tokens::text, MaskKind::none, 30},
};

constexpr bool kMaskFree = true;

// name, summary, {height, width, frames}, layers, steps, mask-free; heads, patch, frame stride,
// text tokens, image tokens, roles
constexpr ModelRow kModels[] = {
    {{"wan2.1-t2v-1.3b", "Wan 2.1 text to video, 1.3B", {480, 832, 81}, 30, 50, kMaskFree},
     12,
     16,
     4,
     kWanText,
     0,
     kWan30},
    {{"wan2.1-t2v-14b", "Wan 2.1 text to video, 14B", {720, 1280, 81}, 40, 50, kMaskFree},
     40,
     16,
     4,
     kWanText,
     0,
     kWan40},
    {{"wan2.1-i2v-14b", "Wan 2.1 image to video, 14B", {720, 1280, 81}, 40, 40, kMaskFree},
     40,
     16,
     4,
     kWanText,
     kClipImage,
     kWanImage40},
    {{"wan2.2-a14b", "Wan 2.2 A14B, either expert", {720, 1280, 81}, 40, 40, kMaskFree},
     40,
     16,
     4,
     kWanText,
     0,
     kWan40},
    {{"wan2.2-ti2v-5b", "Wan 2.2 text and image to video, 5B", {704, 1280, 121}, 30, 50, kMaskFree},
     24,
     32,
     4,
     kWanText,
     0,
     kWan30},
    {{"qwen-image", "Qwen-Image, prompt of 128 tokens", {1024, 1024, 1}, 60, 50, !kMaskFree},
     24,
     16,
     0,
     kImageText,
     0,
     kQwen},
    {{"z-image", "Z-Image Turbo, prompt of 128 tokens", {1024, 1024, 1}, 34, 8, !kMaskFree},
     30,
     16,
     0,
     kImageText,
     0,
     kZImage},
    {{"flashvsr", "FlashVSR, one chunk of 8 frames", {768, 1280, 8}, 30, 1, !kMaskFree},
     12,
     16,
     4,
     kWanText,
     0,
     kFlashVsr},
};

bool is_flashvsr(const ModelRow& model) { return model.roles.data() == kFlashVsr; }

Error size_error(const ModelRow& model, std::string_view field, int64_t got, std::string accepted) {
  return Error{ErrorCode::invalid_argument,
               text::concat("model ", model.preset.name, ": ", field, ' ', got,
                            " is not possible; accepted: ", accepted),
               {}};
}

// Latent frames, or what is accepted.
Result<int64_t> latent_frames(const ModelRow& model, int64_t frames) {
  if (model.frame_stride == 0) {
    if (frames == 1) return int64_t{1};
    return size_error(model, "frames", frames, "1, it makes images");
  }
  if (is_flashvsr(model)) {
    if (frames == kFlashVsrNext) return frames / model.frame_stride;
    if (frames == kFlashVsrFirst) return int64_t{6};
    return size_error(model, "frames", frames, "25 for the first chunk, 8 for a later one");
  }
  if (frames < 1 || (frames - 1) % model.frame_stride != 0)
    return size_error(
        model, "frames", frames,
        text::concat(model.frame_stride, "k + 1, such as ", model.preset.size.frames));
  return (frames - 1) / model.frame_stride + 1;
}

constexpr int64_t kMaxPixels = 1 << 20;  // per axis
constexpr int64_t kMaxFrames = 1 << 20;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = [] {
    std::vector<ModelPreset> list;
    for (const ModelRow& model : kModels) list.push_back(model.preset);
    return list;
  }();
  return presets;
}

Result<ModelDescription> describe_model(std::string_view name, ModelSize size) {
  const std::string_view word = text::trim(name);
  std::vector<std::string_view> names;
  const ModelRow* found = nullptr;
  for (const ModelRow& model : kModels) {
    names.push_back(model.preset.name);
    if (text::equal_folded(word, model.preset.name)) found = &model;
  }
  if (found == nullptr)
    return Error{ErrorCode::invalid_argument,
                 text::concat("unknown model preset ", text::quote(word), "; presets are ",
                              text::join(names), text::suggestion(word, names)),
                 {}};
  const ModelRow& model = *found;
  const ModelPreset& preset = model.preset;
  if (size.height == 0) size.height = preset.size.height;
  if (size.width == 0) size.width = preset.size.width;
  if (size.frames == 0) size.frames = preset.size.frames;
  // FlashVSR attends in windows of 8 x 8 tokens.
  const int64_t multiple = is_flashvsr(model) ? model.patch * 8 : model.patch;
  for (const auto& [field, pixels] :
       {std::pair<std::string_view, int64_t>{"height", size.height}, {"width", size.width}})
    if (pixels < 1 || pixels > kMaxPixels || pixels % multiple != 0)
      return size_error(model, field, pixels,
                        text::concat("multiples of ", multiple, " up to ", kMaxPixels));
  if (size.frames > kMaxFrames)
    return size_error(model, "frames", size.frames, text::concat("at most ", kMaxFrames));
  FOVEA_TRY(const int64_t frames, latent_frames(model, size.frames));

  const int64_t per_frame = (size.height / model.patch) * (size.width / model.patch);
  const int64_t grid = frames * per_frame;
  const int64_t cached = size.frames == kFlashVsrFirst ? 0 : kFlashVsrCached * grid;
  const auto length = [&](Tokens tokens) -> int64_t {
    switch (tokens) {
      case Tokens::grid:
        return grid;
      case Tokens::text:
        return model.text;
      case Tokens::image:
        return model.image;
      case Tokens::joint:
        return grid + model.text;
      case Tokens::padded_grid:
        return round_up(grid, 32);
      case Tokens::padded_text:
        return round_up(model.text, 32);
      case Tokens::padded_joint:
        return round_up(grid, 32) + round_up(model.text, 32);
      case Tokens::grid_and_cached:
        return grid + cached;
    }
    return 0;
  };

  ModelDescription description{preset.name,      size, preset.layers, preset.steps,
                               preset.mask_free, {}};
  for (const RoleRow& row : model.roles) {
    const bool video = model.frame_stride != 0 && row.q == Tokens::grid && row.kv == Tokens::grid;
    description.roles.push_back({row.role, row.category, model.heads, kHeadDim, length(row.q),
                                 length(row.kv), row.mask, row.layers, video ? frames : 0,
                                 video ? per_frame : 0});
  }
  return description;
}

}  // namespace fovea
