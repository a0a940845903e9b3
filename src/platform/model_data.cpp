#include "src/platform/model_data.hpp"

#include <algorithm>
#include <utility>

#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"
#include "src/platform/map_reader.hpp"

namespace fovea::platform {
namespace {

using config::Path;
using config::Problems;
using config::Value;

constexpr int64_t kMaxPixels = 1 << 20;  // per axis
constexpr int64_t kMaxFrames = 1 << 20;
constexpr int64_t kMaxCount = 1 << 16;   // heads, layers, steps and the like
constexpr int64_t kMaxTokens = 1 << 24;  // of a prompt
constexpr int64_t kMaxCached = 64;

constexpr std::string_view kTokens[] = {"grid", "text", "image", "cached"};  // as Tokens
constexpr std::string_view kCategories[] = {"self", "cross", "joint"};
constexpr std::string_view kMasks[] = {"none", "keys"};

ModelSize read_size(MapReader& reader, Problems& problems) {
  const Value* node = reader.member("size", Presence::required);
  if (node == nullptr) return {};
  MapReader map(*node, reader.path("size"), problems);
  ModelSize size;
  size.height = map.integer("height", 1, kMaxPixels);
  size.width = map.integer("width", 1, kMaxPixels);
  size.frames = map.integer("frames", 1, kMaxFrames);
  map.finish();
  return size;
}

void read_tokens(MapReader& reader, ModelData& model, Problems& problems) {
  const Value* node = reader.member("tokens", Presence::optional);
  if (node == nullptr) return;
  MapReader map(*node, reader.path("tokens"), problems);
  model.text = map.integer("text", 1, kMaxTokens, Presence::optional);
  model.image = map.integer("image", 1, kMaxTokens, Presence::optional);
  map.finish();
}

std::vector<ChunkData> read_chunks(MapReader& reader, Problems& problems) {
  std::vector<ChunkData> chunks;
  const std::vector<Value>* list = reader.list("chunks", "a list of maps", Presence::optional);
  if (list == nullptr) return chunks;
  for (size_t i = 0; i < list->size(); ++i) {
    MapReader map((*list)[i], reader.path("chunks")[i], problems);
    ChunkData chunk;
    chunk.what = map.text("what");
    chunk.frames = map.integer("frames", 1, kMaxFrames);
    chunk.latent_frames = map.integer("latent_frames", 1, kMaxCount);
    chunk.cached = map.integer("cached", 0, kMaxCached);
    map.finish();
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

std::vector<Tokens> read_sequence(MapReader& reader, std::string_view key, const ModelData& model,
                                  Problems& problems) {
  std::vector<Tokens> sequence;
  const std::string accepted = text::concat("a list of ", text::join(kTokens));
  const std::vector<Value>* list = reader.list(key, accepted);
  if (list == nullptr) return sequence;
  for (size_t i = 0; i < list->size(); ++i) {
    const Value& item = (*list)[i];
    const Path path = reader.path(key)[i];
    const auto found = item.is_string()
                           ? std::find(std::begin(kTokens), std::end(kTokens), item.text)
                           : std::end(kTokens);
    if (found == std::end(kTokens)) {
      problems.mismatch(path, text::join(kTokens), item,
                        item.is_string() ? text::suggestion(item.text, kTokens) : std::string());
      continue;
    }
    const auto tokens = static_cast<Tokens>(found - std::begin(kTokens));
    if (std::find(sequence.begin(), sequence.end(), tokens) != sequence.end())
      problems.add(path, ReasonCode::option_value, text::concat(*found, " stands there twice"));
    if (tokens == Tokens::text && model.text == 0)
      problems.add(path, ReasonCode::option_value, "needs tokens.text, the length of the prompt");
    if (tokens == Tokens::image && model.image == 0)
      problems.add(path, ReasonCode::option_value, "needs tokens.image, the length of the image");
    if (tokens == Tokens::cached && model.chunks.empty())
      problems.add(path, ReasonCode::option_value, "needs chunks, which say what is cached");
    sequence.push_back(tokens);
  }
  return sequence;
}

void read_roles(MapReader& reader, ModelData& model, Problems& problems) {
  const std::vector<Value>* list = reader.list("roles", "a list of maps");
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size(); ++i) {
    const Path path = reader.path("roles")[i];
    MapReader map((*list)[i], path, problems);
    RoleData role;
    role.role = map.text("role");
    role.category = kCategories[map.word("category", kCategories)];
    role.q = read_sequence(map, "q", model, problems);
    role.kv = read_sequence(map, "kv", model, problems);
    role.mask = map.word("mask", kMasks) == 0 ? MaskKind::none : MaskKind::keys;
    role.layers =
        map.integer("layers", 1, model.preset.layers > 0 ? model.preset.layers : kMaxCount);
    map.finish();
    if (role.mask != MaskKind::none && model.preset.mask_free)
      problems.add(path / "mask", ReasonCode::option_value, "contradicts mask_free, which is true");
    for (const RoleData& other : model.roles)
      if (other.role == role.role && !role.role.empty())
        problems.add(path / "role", ReasonCode::option_value,
                     text::concat("the role ", text::quote(role.role), " is listed twice"));
    model.roles.push_back(std::move(role));
  }
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Error size_error(const ModelData& model, std::string_view field, int64_t got,
                 std::string accepted) {
  return Error{ErrorCode::invalid_argument,
               text::concat("model ", model.preset.name, ": ", field, ' ', got,
                            " is not possible; accepted: ", accepted),
               {}};
}

// How many frames of what, and what was made before.
struct Frames {
  int64_t latent = 1;
  int64_t cached = 0;
};

Result<Frames> latent_frames(const ModelData& model, int64_t frames) {
  if (!model.chunks.empty()) {
    std::vector<std::string> accepted;
    for (const ChunkData& chunk : model.chunks) {
      if (chunk.frames == frames) return Frames{chunk.latent_frames, chunk.cached};
      accepted.push_back(text::concat(chunk.frames, " for ", chunk.what));
    }
    return size_error(model, "frames", frames, text::join(accepted));
  }
  if (model.frame_stride == 0) {
    if (frames == 1) return Frames{};
    return size_error(model, "frames", frames, "1, it makes images");
  }
  if (frames < 1 || (frames - 1) % model.frame_stride != 0)
    return size_error(
        model, "frames", frames,
        text::concat(model.frame_stride, "k + 1, such as ", model.preset.size.frames));
  return Frames{(frames - 1) / model.frame_stride + 1, 0};
}

}  // namespace

Result<ModelData> parse_model(std::string_view json, std::string_view origin) {
  Problems problems;
  FOVEA_TRY(const Value node, config::read_json(json, origin, problems));
  MapReader reader(node, {}, problems);
  ModelData model;
  model.preset.name = reader.text("name");
  model.preset.summary = reader.text("summary", Presence::optional);
  model.preset.size = read_size(reader, problems);
  model.preset.layers = reader.integer("layers", 1, kMaxCount);
  model.preset.steps = reader.integer("steps", 1, kMaxCount);
  model.preset.mask_free = reader.flag("mask_free", false);
  model.heads = reader.integer("heads", 1, kMaxCount);
  model.head_dim = reader.integer("head_dim", 1, kMaxCount);
  model.patch = reader.integer("patch", 1, kMaxCount, Presence::required, 1);
  model.window = reader.integer("window", 1, kMaxCount, Presence::optional, 1);
  model.frame_stride = reader.integer("frame_stride", 1, kMaxCount, Presence::optional);
  model.token_multiple = reader.integer("token_multiple", 1, kMaxCount, Presence::optional, 1);
  model.chunks = read_chunks(reader, problems);
  read_tokens(reader, model, problems);
  read_roles(reader, model, problems);
  if (reader.has("chunks") && reader.has("frame_stride"))
    problems.add(reader.path("chunks"), ReasonCode::option_value,
                 "says how frames are counted, and so does frame_stride; leave one of them out");
  std::vector<std::string_view> values = reader.given();
  std::erase_if(values, [](std::string_view key) { return key == "name" || key == "summary"; });
  model.has_sources = reader.has("sources");
  read_sources(reader, "sources", values, problems);
  reader.finish();
  if (!problems.empty()) return problems.error(origin);
  const auto refuse = [&](std::string message) {
    return Error{ErrorCode::invalid_config, text::concat(origin, ": ", message), {}};
  };
  const auto at_default = describe(model, {});
  if (!at_default) return refuse(text::concat("size: ", at_default.error().message));
  for (size_t i = 0; i < at_default->roles.size(); ++i)
    if (at_default->roles[i].seq_q == 0 || at_default->roles[i].seq_kv == 0)
      return refuse(text::concat("roles[", i, "]: no tokens are left at the default size"));
  return model;
}

Result<ModelDescription> describe(const ModelData& model, ModelSize size) {
  const ModelPreset& preset = model.preset;
  if (size.height == 0) size.height = preset.size.height;
  if (size.width == 0) size.width = preset.size.width;
  if (size.frames == 0) size.frames = preset.size.frames;
  const int64_t multiple = model.patch * model.window;
  for (const auto& [field, pixels] :
       {std::pair<std::string_view, int64_t>{"height", size.height}, {"width", size.width}})
    if (pixels < 1 || pixels > kMaxPixels || pixels % multiple != 0)
      return size_error(model, field, pixels,
                        text::concat("multiples of ", multiple, " up to ", kMaxPixels));
  if (size.frames > kMaxFrames)
    return size_error(model, "frames", size.frames, text::concat("at most ", kMaxFrames));
  FOVEA_TRY(const Frames frames, latent_frames(model, size.frames));

  const int64_t per_frame = (size.height / model.patch) * (size.width / model.patch);
  const int64_t grid = frames.latent * per_frame;
  const int64_t lengths[] = {grid, model.text, model.image, frames.cached * grid};  // as Tokens
  const auto length = [&](const std::vector<Tokens>& sequence) {
    int64_t sum = 0;
    for (const Tokens tokens : sequence)
      sum += round_up(lengths[static_cast<size_t>(tokens)], model.token_multiple);
    return sum;
  };

  const bool makes_video = model.frame_stride != 0 || !model.chunks.empty();
  const std::vector<Tokens> only_grid{Tokens::grid};
  ModelDescription description{preset.name,      size, preset.layers, preset.steps,
                               preset.mask_free, {}};
  for (const RoleData& role : model.roles) {
    const bool video = makes_video && role.q == only_grid && role.kv == only_grid;
    description.roles.push_back({role.role, role.category, model.heads, model.head_dim,
                                 length(role.q), length(role.kv), role.mask, role.layers,
                                 video ? frames.latent : 0, video ? per_frame : 0});
  }
  return description;
}

}  // namespace fovea::platform
