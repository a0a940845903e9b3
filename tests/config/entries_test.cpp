#include "src/config/entries.hpp"

#include <gtest/gtest.h>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

TEST(Entries, nested_roles_flatten_with_dots) {
  // The six roles of LTX-2.
  const auto config = parsed(R"({"per_role": {
      "ltx2": {"audio_self": {"backend": "FA2"}, "connector": "FA3",
               "cross": {"audio_text": "TORCH_SDPA", "audio_to_video": {"backend": "CUDNN_ATTN"}},
               "video_to_audio": "FA4"},
      "self": "REF"}})");
  ASSERT_EQ(6u, config.per_role.size());
  const std::pair<const char*, BackendName> roles[] = {
      {"ltx2.audio_self", backend::FLASH_ATTN_2},
      {"ltx2.connector", backend::FLASH_ATTN_3},
      {"ltx2.cross.audio_text", backend::TORCH_SDPA},
      {"ltx2.cross.audio_to_video", backend::CUDNN_ATTN},
      {"ltx2.video_to_audio", backend::FLASH_ATTN_4},
      {"self", backend::REFERENCE}};
  for (const auto& [role, backend] : roles) {
    ASSERT_TRUE(config.per_role.contains(role)) << role;
    EXPECT_EQ(backend, config.per_role.at(role).backend) << role;
  }
  EXPECT_EQ(config, parsed(to_json(config))) << "dotted keys are read like nested ones";
}

TEST(Entries, a_role_given_twice_is_refused) {
  EXPECT_HAS(refused(R"({"per_role": {"a": {"b": "FA3"}, "a.b": "FA2"}})"),
             "per_role.a.b: role 'a.b' is given twice");
}

TEST(Entries, spec_keys_and_roles_do_not_mix) {
  EXPECT_HAS(refused(R"({"per_role": {"ltx2": {"backend": "FA3", "gen": {"backend": "FA2"}}}})"),
             "per_role.ltx2.gen: unknown key");
  EXPECT_HAS(refused(R"({"per_role": {"ltx2": {"backend": "FA3", "gen": {"backend": "FA2"}}}})"),
             "nested roles cannot be mixed with these keys");
}

TEST(Entries, any_spec_key_marks_a_spec) {
  for (const char* key : {"quant", "aiter_quant", "skip_softmax", "block_sparse", "radial",
                          "local_sparse", "extra", "sparse_config"}) {
    EXPECT_HAS(refused(R"({"per_role": {"r": {")" + std::string(key) + R"(": {}}}})"),
               "per_role.r: names no backend")
        << key;
  }
  for (const char* key : {"strictness", "provider", "fastvideo_vsa_topk", "allow_copy", "scale",
                          "is_causal", "dropout", "from_factory"}) {
    EXPECT_HAS(refused(R"({"per_role": {"r": {")" + std::string(key) + R"(": null}}})"),
               "per_role.r: names no backend")
        << key;
  }
}

TEST(Entries, a_misspelt_key_is_not_taken_as_a_role) {
  EXPECT_EQ(
      "config: per_role.self.bakend: not taken as the name of a nested role; did you mean "
      "'backend'?",
      refused(R"({"per_role": {"self": {"bakend": "FA3"}}})"));
  EXPECT_HAS(refused(R"({"per_role": {"self": {"quants": {}}}})"), "did you mean 'quant'?");
}

TEST(Entries, empty_maps_are_refused_inside_and_allowed_on_top) {
  EXPECT_EQ("config: per_role.self: an empty map; name a backend, or remove the entry",
            refused(R"({"per_role": {"self": {}}})"));
  EXPECT_HAS(refused(R"({"per_role": {"a": {"b": {}}}})"), "per_role.a.b: an empty map");
  EXPECT_EQ(AttentionConfig{}, parsed(R"({"per_role": {}})"));
  EXPECT_EQ(AttentionConfig{}, parsed("{}"));
  EXPECT_EQ(AttentionConfig{}, parsed("null"));
}

TEST(Entries, auto_and_null_drop_a_role) {
  const auto config =
      parsed(R"({"default": "FA3", "per_role": {"a": "auto", "b": null, "c": {"backend": "AUTO"},
                 "d": {"e": "Auto", "f": "FA2"}}})");
  ASSERT_EQ(1u, config.per_role.size());
  EXPECT_TRUE(config.per_role.contains("d.f"));
  EXPECT_EQ("attention_config.default", config.resolve("a").source);
}

TEST(Entries, wrong_shapes_are_refused) {
  EXPECT_EQ(
      "config: the top level: expected a map with the keys default and per_role, found a list",
      refused("[]"));
  EXPECT_EQ("config: default: expected a backend name or a map, found 1",
            refused(R"({"default": 1})"));
  EXPECT_EQ("config: per_role: expected a map from roles to backends, found a list",
            refused(R"({"per_role": ["self"]})"));
  EXPECT_HAS(refused(R"({"per_role": {"": "FA3"}})"), "a role name has no empty parts");
  EXPECT_HAS(refused(R"({"per_role": {"a..b": "FA3"}})"), "a role name has no empty parts");
  EXPECT_HAS(refused(R"({"per_role": {" self": "FA3"}})"), "a role name has no empty parts");
  EXPECT_EQ(
      "config: defualt: unknown key; known here: default, per_role, attn_impl, sparse_config, "
      "scale, is_causal, dropout; did you mean 'default'?",
      refused(R"({"defualt": "FA3"})"));
  EXPECT_EQ("config: backend: stands inside an entry; write {\"default\": {\"backend\": ...}}",
            refused(R"({"backend": "FA3"})"));
}

ConfigSources flags(std::initializer_list<ConfigFlag> list, std::string text = {}) {
  ConfigSources sources;
  sources.text = std::move(text);
  sources.flags = list;
  return sources;
}

TEST(Entries, flags_build_a_config_alone) {
  const auto config = parsed(flags({{"default.backend", "trtllm_attn"},
                                    {"default.skip_softmax.target_sparsity", "0.5"},
                                    {"default.quant.dtype_qk", "int8"},
                                    {"default.quant.q_block_size", "4"},
                                    {"default.allow_copy", "TRUE"},
                                    {"per_role.cross.backend", "FA2"},
                                    {"per_role.ltx2.audio_self", "FA3"}}));
  EXPECT_EQ(config, parsed(R"({"default": {"backend": "TRTLLM_ATTN", "allow_copy": true,
      "skip_softmax": {"target_sparsity": 0.5}, "quant": {"dtype_qk": "int8", "q_block_size": 4}},
      "per_role": {"cross": "FA2", "ltx2": {"audio_self": "FA3"}}})"));
}

TEST(Entries, flags_beat_the_text) {
  EXPECT_EQ(parsed(flags({{"default.backend", "FA2"}}, R"({"default": {"attn_impl": "FA3"}})")),
            parsed(R"({"default": "FA2"})"));
  EXPECT_EQ(parsed(flags({{"default.strictness", "prefer"}}, R"({"default": "FA3"})")),
            parsed(R"({"default": {"backend": "FA3", "strictness": "prefer"}})"));
  EXPECT_EQ(
      parsed(flags({{"per_role.a.b.allow_copy", "true"}}, R"({"per_role": {"a": {"b": "FA3"}}})")),
      parsed(R"({"per_role": {"a.b": {"backend": "FA3", "allow_copy": true}}})"));
  EXPECT_EQ(parsed(flags({{"default.quant", "null"}, {"default.backend", "FA3"}},
                         R"({"default": {"backend": "TRTLLM_ATTN", "quant": {}}})")),
            parsed(R"({"default": "FA3"})"));
  EXPECT_EQ(parsed(flags({{"default", "null"}}, R"({"default": "FA3"})")), AttentionConfig{});
  EXPECT_EQ(
      parsed(flags({{"default", R"({"backend": "FA2", "scale": 2})"}}, R"({"default": "FA3"})")),
      parsed(R"({"default": {"backend": "FA2", "scale": 2}})"));
}

TEST(Entries, flags_take_the_guides_keys) {
  EXPECT_EQ(parsed(flags({{"attn_impl", "RADIAL_ATTN"}, {"sparse_config.dense_timesteps", "3"}})),
            parsed(R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"dense_timesteps": 3}})"));
  EXPECT_EQ(parsed(flags({{"scale", "0.5"}}, R"({"default": "FA3"})")),
            parsed(R"({"default": {"backend": "FA3", "scale": 0.5}})"));
}

TEST(Entries, faulty_flags_name_the_flag) {
  const std::pair<ConfigFlag, const char*> cases[] = {
      {{"defualt.backend", "FA3"}, "--config.defualt.backend: unknown key; known here: default"},
      {{"default.bakend", "FA3"}, "--config.default.bakend: unknown key; known here: backend"},
      {{"default.backend", "FA33"}, "--config.default.backend: backend 'FA33' is not known"},
      {{"per_role.backend", "FA3"}, "--config.per_role.backend: names no role"},
      {{"per_role", "FA3"}, "--config.per_role: names no role"},
      {{"per_role.self.bakend", "FA3"},
       "--config.per_role.self.bakend: 'bakend' is not taken as a role; did you mean 'backend'?"},
      {{"", "FA3"}, "is not a path"},
      {{"default..backend", "FA3"}, "is not a path"},
      {{"default.scale", "0.1x"},
       "--config.default.scale: expected a finite number above 0, found '0.1x'"},
      {{"default.scale", "nan"},
       "--config.default.scale: expected a finite number above 0, found 'nan'"},
      {{"default.allow_copy", "1"},
       "--config.default.allow_copy: expected true or false, found '1'"},
      {{"default.quant", "int8"}, "--config.default.quant: expected a map with keys among"},
      {{"default", "{\"backend\": }"},
       "--config.default: its value: not valid JSON at line 1, column 13"},
      {{"default.backend.x", "FA3"},
       "--config.default.backend: expected a backend name, found a map"},
  };
  for (const auto& [flag, expected] : cases) {
    EXPECT_HAS(refused(flags({flag}, R"({"default": {"backend": "FA3", "is_causal": false}})")),
               expected);
  }
  EXPECT_HAS(refused(flags({{"per_role.cross", R"({"backend": "FA3", "scale": -1})"}})),
             "--config.per_role.cross.scale: expected a finite number above 0, found -1");
  EXPECT_HAS(refused(flags({{"\xff.backend", "FA3"}})), "--config.'\\xff'.backend: is not a path");
  EXPECT_HAS(refused(flags({{"default", "FA3"}, {"default", "FA2"}})),
             "--config.default: is given twice");
}

}  // namespace
}  // namespace fovea
