#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "fovea/model_preset.hpp"
#include "src/platform/model_data.hpp"
#include "src/platform/preset_data.hpp"

namespace fovea {
namespace {

struct Lengths {
  int64_t q;
  int64_t kv;
};

struct Case {
  const char* model;
  ModelSize size;
  int64_t heads;
  std::map<std::string_view, Lengths> roles;
};

// Published token counts at usual sizes.
const Case kCases[] = {
    {"wan2.1-t2v-1.3b",
     {480, 832, 81},
     12,
     {{"wan.self", {32760, 32760}}, {"wan.cross.text", {32760, 512}}}},
    {"wan2.1-t2v-14b",
     {720, 1280, 81},
     40,
     {{"wan.self", {75600, 75600}}, {"wan.cross.text", {75600, 512}}}},
    {"wan2.1-t2v-14b",
     {720, 1280, 161},
     40,
     {{"wan.self", {147600, 147600}}, {"wan.cross.text", {147600, 512}}}},
    {"wan2.1-i2v-14b",
     {480, 832, 81},
     40,
     {{"wan.self", {32760, 32760}},
      {"wan.cross.text", {32760, 512}},
      {"wan.cross.image", {32760, 257}}}},
    {"wan2.2-a14b", {}, 40, {{"wan.self", {75600, 75600}}, {"wan.cross.text", {75600, 512}}}},
    {"wan2.2-ti2v-5b",
     {704, 1280, 121},
     24,
     {{"wan.self", {27280, 27280}}, {"wan.cross.text", {27280, 512}}}},
    {"qwen-image", {1024, 1024, 1}, 24, {{"qwen.joint", {4224, 4224}}}},
    {"qwen-image", {1328, 1328, 0}, 24, {{"qwen.joint", {6889 + 128, 6889 + 128}}}},
    {"z-image",
     {1024, 1024, 1},
     30,
     {{"zimage.noise_refiner", {4096, 4096}},
      {"zimage.context_refiner", {128, 128}},
      {"zimage.joint", {4224, 4224}}}},
    // 63 x 63 tokens are padded to a multiple of 32.
    {"z-image",
     {1008, 1008, 1},
     30,
     {{"zimage.noise_refiner", {3968 + 32, 3968 + 32}},
      {"zimage.context_refiner", {128, 128}},
      {"zimage.joint", {4000 + 128, 4000 + 128}}}},
    {"flashvsr",
     {768, 1280, 8},
     12,
     {{"flashvsr.self", {7680, 30720}}, {"flashvsr.cross.text", {7680, 512}}}},
    {"flashvsr",
     {768, 1280, 25},
     12,
     {{"flashvsr.self", {23040, 23040}}, {"flashvsr.cross.text", {23040, 512}}}},
    {"flashvsr",
     {1408, 2560, 8},
     12,
     {{"flashvsr.self", {28160, 112640}}, {"flashvsr.cross.text", {28160, 512}}}},
};

TEST(ModelPresets, RolesAndLengthsAtUsualSizes) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.model);
    const Result<ModelDescription> model = describe_model(c.model, c.size);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->roles.size(), c.roles.size());
    for (const ModelRole& role : model->roles) {
      SCOPED_TRACE(role.role);
      ASSERT_TRUE(c.roles.contains(role.role));
      EXPECT_EQ(role.seq_q, c.roles.at(role.role).q);
      EXPECT_EQ(role.seq_kv, c.roles.at(role.role).kv);
      EXPECT_EQ(role.heads, c.heads);
      EXPECT_EQ(role.head_dim, 128);
      EXPECT_GT(role.layers, 0);
      EXPECT_LE(role.layers, model->layers);
      EXPECT_EQ(role.seq_q != role.seq_kv && role.category != "self", role.category == "cross");
    }
  }
}

TEST(ModelPresets, OnlyWanIsMaskFree) {
  std::set<std::string_view> names;
  for (const ModelPreset& preset : model_presets()) {
    names.insert(preset.name);
    EXPECT_EQ(preset.mask_free, preset.name.starts_with("wan")) << preset.name;
    EXPECT_FALSE(preset.summary.empty());
    EXPECT_GT(preset.steps, 0);
    const Result<ModelDescription> model = describe_model(preset.name);
    ASSERT_TRUE(model);
    EXPECT_EQ(model->size, preset.size);
    EXPECT_EQ(model->mask_free, preset.mask_free);
    for (const ModelRole& role : model->roles) {
      SCOPED_TRACE(role.role);
      EXPECT_TRUE(role.mask == MaskKind::none || !preset.mask_free);
    }
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"wan2.1-t2v-1.3b", "wan2.1-t2v-14b",
                                               "wan2.1-i2v-14b", "wan2.2-a14b", "wan2.2-ti2v-5b",
                                               "qwen-image", "z-image", "flashvsr"}));
}

TEST(ModelPresets, VideoGridIsGivenForSelfAttention) {
  const ModelDescription wan = describe_model("wan2.1-t2v-14b").value();
  EXPECT_EQ(wan.roles[0].latent_frames, 21);
  EXPECT_EQ(wan.roles[0].tokens_per_frame, 3600);
  EXPECT_EQ(wan.roles[1].latent_frames, 0);
  EXPECT_EQ(describe_model("qwen-image")->roles[0].latent_frames, 0);
}

TEST(ModelPresets, ImpossibleSizesNameTheRule) {
  const std::pair<const char*, ModelSize> cases[] = {
      {"wan2.1-t2v-14b", {720, 1280, 80}},
      {"wan2.1-t2v-14b", {700, 1280, 81}},
      {"wan2.2-ti2v-5b", {720, 1280, 121}},
      {"qwen-image", {1024, 1024, 5}},
      {"flashvsr", {720, 1280, 8}},
      {"flashvsr", {768, 1280, 16}},
      {"wan2.1-t2v-14b", {-720, 1280, 81}},
      {"wan2.1-t2v-14b", {720, 1280, -3}},
      {"wan2.1-t2v-14b", {int64_t{1} << 40, 1280, 81}},
      {"wan2.1-t2v-14b", {720, 1280, (int64_t{1} << 40) + 1}}};
  for (const auto& [model, size] : cases) {
    const Result<ModelDescription> result = describe_model(model, size);
    ASSERT_FALSE(result) << model << ' ' << size.height << ' ' << size.frames;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message.find("accepted"), std::string::npos);
    EXPECT_NE(result.error().message.find(model), std::string::npos);
  }
}

TEST(ModelPresets, UnknownNameListsAndSuggests) {
  const Result<ModelDescription> result = describe_model("wan2.1-t2v-14");
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("wan2.1-t2v-1.3b, wan2.1-t2v-14b"), std::string::npos);
  EXPECT_NE(result.error().message.find("did you mean 'wan2.1-t2v-14b'"), std::string::npos);
  EXPECT_TRUE(describe_model(" Qwen-Image "));
}

TEST(ModelPresets, EveryFileIsReadAndStatesItsSources) {
  EXPECT_EQ(platform::model_files().size(), model_presets().size());
  for (const platform::PresetFile& file : platform::model_files()) {
    const auto model = platform::parse_model(file.text, file.path);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_TRUE(model->has_sources) << file.path;
    EXPECT_EQ(file.path, "data/models/" + model->preset.name + ".json");
  }
}

constexpr const char* kOwn = R"({"name": "own", "size": {"height": 64, "width": 64, "frames": 5},
  "layers": 3, "steps": 4, "heads": 2, "head_dim": 64, "patch": 16, "frame_stride": 4,
  "tokens": {"text": 9}, "token_multiple": 8, "roles": [
  {"role": "a", "category": "self", "q": ["grid"], "kv": ["grid"], "mask": "none", "layers": 3},
  {"role": "b", "category": "joint", "q": ["grid", "text"], "kv": ["grid", "text"],
   "mask": "keys", "layers": 1}]})";

TEST(ModelPresets, AnOwnModelIsDescribedLikeAPreset) {
  const Result<ModelDescription> model = describe_model_json(kOwn, "own.json");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->name, "own");
  EXPECT_FALSE(model->mask_free);  // not stated
  ASSERT_EQ(model->roles.size(), 2u);
  EXPECT_EQ(model->roles[0], (ModelRole{"a", "self", 2, 64, 32, 32, MaskKind::none, 3, 2, 16}));
  EXPECT_EQ(model->roles[1], (ModelRole{"b", "joint", 2, 64, 48, 48, MaskKind::keys, 1, 0, 0}));
  EXPECT_EQ(describe_model_json(kOwn, "own.json", {64, 128, 9})->roles[0].seq_q, 96);
  EXPECT_EQ(describe_model_json(kOwn, "own.json", {64, 100, 9}).error().code,
            ErrorCode::invalid_argument);
}

// kOwn with one piece replaced.
std::string changed(std::string_view from, std::string_view to) {
  std::string text = kOwn;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ModelPresets, WhatIsWrongWithAnOwnModelIsSaidByPlace) {
  const struct {
    std::string_view from, to, message;
  } cases[] = {
      {"\"name\": \"own\", ", "", "own.json: the top level: lacks name"},
      {"\"layers\": 3, \"steps\"", "\"layers\": 0, \"steps\"",
       "own.json: layers: expected an integer from 1 to 65536, found 0"},
      {"\"steps\": 4", "\"steps\": true",
       "own.json: steps: expected an integer from 1 to 65536, found true"},
      {"\"heads\": 2", "\"heads\": \"2\"",
       "own.json: heads: expected an integer from 1 to 65536, found the string '2'"},
      {"\"heads\": 2", "\"heads\": 2, \"heads\": 3",
       "own.json: heads: duplicate key; write it once"},
      {"\"patch\": 16", "\"patch\": 16, \"windows\": 8",
       "own.json: windows: unknown key; known here: name, summary, size, layers, steps, mask_free, "
       "heads, head_dim, patch, window, frame_stride, token_multiple, chunks, tokens, roles, "
       "sources; did you mean 'window'?"},
      {"\"patch\": 16", "\"patch\": 16, \"mask_free\": 1",
       "own.json: mask_free: expected true or false, found 1"},
      {"\"patch\": 16", "\"patch\": 16, \"mask_free\": true",
       "own.json: roles[1].mask: contradicts mask_free, which is true"},
      {"\"height\": 64", "\"height\": 65",
       "own.json: size: model own: height 65 is not possible; accepted: multiples of 16 up to "
       "1048576"},
      {"\"frames\": 5", "\"frames\": 6",
       "own.json: size: model own: frames 6 is not possible; accepted: 4k + 1, such as 6"},
      {"{\"text\": 9}", "{\"image\": 9}",
       "own.json: 2 problems\n"
       "  roles[1].q[1]: needs tokens.text, the length of the prompt\n"
       "  roles[1].kv[1]: needs tokens.text, the length of the prompt"},
      {"\"kv\": [\"grid\"]", "\"kv\": [\"grid\", \"cached\"]",
       "own.json: roles[0].kv[1]: needs chunks, which say what is cached"},
      {"\"kv\": [\"grid\"]", "\"kv\": [\"gird\"]",
       "own.json: roles[0].kv[0]: expected grid, text, image, cached, found the string 'gird'; did "
       "you mean 'grid'?"},
      {"\"kv\": [\"grid\"]", "\"kv\": []",
       "own.json: roles[0].kv: expected a list of grid, text, image, cached, found a list"},
      {"\"kv\": [\"grid\"]", "\"kv\": [\"grid\", \"grid\"]",
       "own.json: roles[0].kv[1]: grid stands there twice"},
      {"\"self\"", "\"own\"",
       "own.json: roles[0].category: expected self, cross, joint, found the string 'own'"},
      {"\"none\"", "null", "own.json: roles[0].mask: expected none, keys, found null"},
      {"\"layers\": 1", "\"layers\": 4",
       "own.json: roles[1].layers: expected an integer from 1 to 3, found 4"},
      {"\"role\": \"b\"", "\"role\": \"a\"",
       "own.json: roles[1].role: the role 'a' is listed twice"},
      {"\"frame_stride\": 4",
       "\"frame_stride\": 4, \"chunks\": [{\"what\": \"any\", \"frames\": 5, \"latent_frames\": 2, "
       "\"cached\": 0}]",
       "own.json: chunks: says how frames are counted, and so does frame_stride; leave one of them "
       "out"},
      {"\"layers\": 1}]}", "\"layers\": 1}], \"sources\": {\"size\": \"x\"}}",
       "own.json: 9 problems\n"
       "  sources: lacks layers\n"
       "  sources: lacks steps\n"
       "  sources: lacks heads\n"
       "  sources: lacks head_dim\n"
       "  sources: lacks patch\n"
       "  sources: lacks frame_stride\n"
       "  sources: lacks token_multiple\n"
       "  sources: lacks tokens\n"
       "  sources: lacks roles"},
      {"{\"name\": \"own\",", "[",
       "own.json: not valid JSON at line 1, column 9: unexpected ': {\"height\":'"},
  };
  for (const auto& c : cases) {
    const Result<ModelDescription> model = describe_model_json(changed(c.from, c.to), "own.json");
    ASSERT_FALSE(model) << c.message;
    EXPECT_EQ(model.error().code, ErrorCode::invalid_config) << c.message;
    EXPECT_EQ(model.error().message, c.message);
  }
}

TEST(ModelPresets, StreamedChunksAndWhatTheyCache) {
  const std::string text = R"({"name": "own", "size": {"height": 64, "width": 64, "frames": 9},
    "layers": 1, "steps": 1, "heads": 1, "head_dim": 8, "patch": 16, "window": 2,
    "chunks": [{"what": "the first", "frames": 9, "latent_frames": 3, "cached": 0},
               {"what": "the rest", "frames": 4, "latent_frames": 1, "cached": 2}],
    "roles": [{"role": "a", "category": "self", "q": ["grid"], "kv": [KV], "mask": "none",
               "layers": 1}]})";
  const auto with = [&](std::string_view kv) {
    std::string out = text;
    return out.replace(out.find("KV"), 2, kv);
  };
  const std::string own = with(R"("grid", "cached")");
  EXPECT_EQ(describe_model_json(own, "own")->roles[0].seq_kv, 3 * 16);
  EXPECT_EQ(describe_model_json(own, "own", {0, 0, 4})->roles[0].seq_kv, 16 + 2 * 16);
  EXPECT_EQ(describe_model_json(own, "own", {0, 0, 5}).error().message,
            "model own: frames 5 is not possible; accepted: 9 for the first, 4 for the rest");
  EXPECT_EQ(describe_model_json(own, "own", {0, 48, 4}).error().message,
            "model own: width 48 is not possible; accepted: multiples of 32 up to 1048576");
  EXPECT_EQ(describe_model_json(with(R"("cached")"), "own").error().message,
            "own: roles[0]: no tokens are left at the default size");
}

}  // namespace
}  // namespace fovea
