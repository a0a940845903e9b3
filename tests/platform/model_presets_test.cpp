#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "fovea/model_preset.hpp"

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

}  // namespace
}  // namespace fovea
