#include "fovea/config.hpp"

#include <gtest/gtest.h>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

TEST(Config, exact_role_then_category_then_default_then_nothing) {
  const auto config = parsed(R"({"default": "TORCH_SDPA",
      "per_role": {"ltx2.audio_self": "FA2", "self": "FA3", "cross": "CUDNN_ATTN"}})");
  const auto check = [&](std::string_view role, std::string_view category, BackendName backend,
                         std::string_view source) {
    const auto resolved = config.resolve(role, category);
    ASSERT_NE(nullptr, resolved.spec) << role;
    EXPECT_EQ(backend, resolved.spec->backend) << role;
    EXPECT_EQ(source, resolved.source);
  };
  check("ltx2.audio_self", "self", backend::FLASH_ATTN_2,
        "attention_config.per_role['ltx2.audio_self']");
  check("ltx2.connector", "self", backend::FLASH_ATTN_3,
        "attention_config.per_role['self'] (role_category fallback)");
  check("self", "", backend::FLASH_ATTN_3, "attention_config.per_role['self']");
  check("ltx2.connector", "", backend::TORCH_SDPA, "attention_config.default");
  check("joint", "other", backend::TORCH_SDPA, "attention_config.default");
  const auto none = AttentionConfig{}.resolve("self", "self");
  EXPECT_EQ(nullptr, none.spec);
  EXPECT_EQ("", none.source);
}

// The six attention layers of a model with audio and video: own entries, categories and the default
// side by side.
TEST(Config, six_roles_of_one_model) {
  const auto config = parsed(R"({"default": "TORCH_SDPA", "per_role": {
      "self": "FA3", "cross": "CUDNN_ATTN",
      "ltx2": {"audio_self": "FA2", "audio_to_video": {"backend": "FA4"}}}})");
  struct Case {
    const char* role;
    const char* category;
    BackendName backend;
    const char* source;
  };
  const Case cases[] = {
      {"self", "", backend::FLASH_ATTN_3, "attention_config.per_role['self']"},
      {"ltx2.connector", "self", backend::FLASH_ATTN_3,
       "attention_config.per_role['self'] (role_category fallback)"},
      {"ltx2.audio_self", "self", backend::FLASH_ATTN_2,
       "attention_config.per_role['ltx2.audio_self']"},
      {"ltx2.audio_text_cross", "cross", backend::CUDNN_ATTN,
       "attention_config.per_role['cross'] (role_category fallback)"},
      {"ltx2.audio_to_video", "cross", backend::FLASH_ATTN_4,
       "attention_config.per_role['ltx2.audio_to_video']"},
      {"ltx2.video_to_audio", "cross", backend::CUDNN_ATTN,
       "attention_config.per_role['cross'] (role_category fallback)"},
  };
  for (const Case& c : cases) {
    const auto resolved = config.resolve(c.role, c.category);
    ASSERT_NE(nullptr, resolved.spec) << c.role;
    EXPECT_EQ(c.backend, resolved.spec->backend) << c.role;
    EXPECT_EQ(c.source, resolved.source);
  }
  EXPECT_EQ("attention_config.default", config.resolve("vae", "").source);
}

// Every combination of where a backend may be named, and which one wins.
TEST(Config, precedence) {
  struct Case {
    const char* flag;
    const char* text;
    const char* shorthand;
    const char* environment;
    const char* expected;  // backend, "" platform, "error"
  };
  const Case cases[] = {
      {nullptr, nullptr, "", nullptr, ""},
      {nullptr, nullptr, "", "FA2", "FLASH_ATTN_2"},
      {nullptr, nullptr, "", " \t", ""},
      {nullptr, nullptr, "", "auto", ""},
      {nullptr, nullptr, "FA3", "FA2", "FLASH_ATTN_3"},
      {nullptr, nullptr, "auto", "FA2", ""},
      {nullptr, R"({"default": "FA4"})", "", "FA2", "FLASH_ATTN_4"},
      {nullptr, R"({"default": "FA4"})", "FA3", nullptr, "error"},
      {nullptr, R"({"default": "auto"})", "FA3", nullptr, "error"},
      {nullptr, R"({"attn_impl": "FA4"})", "FA3", nullptr, "error"},
      {nullptr, R"({"scale": 1})", "FA3", nullptr, "error"},
      {nullptr, R"({"default": null})", "FA3", "FA2", "FLASH_ATTN_3"},
      {nullptr, R"({"default": null})", "", "FA2", "FLASH_ATTN_2"},
      {nullptr, R"({"default": "auto"})", "", "FA2", ""},
      {nullptr, R"({"default": {"backend": "auto"}})", "", "FA2", ""},
      {nullptr, R"({"default": {"backend": null}})", "", "FA2", "FLASH_ATTN_2"},
      {nullptr, R"({"attn_impl": "auto"})", "", "FA2", ""},
      {nullptr, "{}", "", "FA2", "FLASH_ATTN_2"},
      {nullptr, R"({"per_role": {"self": "FA4"}})", "", "FA2", "FLASH_ATTN_2"},
      {nullptr, R"({"per_role": {"self": "FA4"}})", "FA3", "FA2", "FLASH_ATTN_3"},
      {"SDPA", nullptr, "", "FA2", "TORCH_SDPA"},
      {"SDPA", nullptr, "FA3", "FA2", "TORCH_SDPA"},
      {"SDPA", R"({"default": "FA4"})", "", "FA2", "TORCH_SDPA"},
      {"SDPA", R"({"default": "auto"})", "", "FA2", "TORCH_SDPA"},
      {"SDPA", R"({"default": "FA4"})", "FA3", nullptr, "error"},
      {"auto", R"({"default": "FA4"})", "", "FA2", ""},
      {"null", R"({"default": "FA4"})", "", "FA2", "FLASH_ATTN_2"},
  };
  for (const Case& each : cases) {
    ConfigSources sources;
    if (each.flag != nullptr) sources.flags.push_back({"default.backend", each.flag});
    if (each.text != nullptr) sources.text = each.text;
    sources.backend = each.shorthand;
    if (each.environment != nullptr) sources.environment = each.environment;
    const auto config = build_config(sources);
    const std::string got = !config                ? "error"
                            : config->default_spec ? name(config->default_spec->backend)
                                                   : "";
    EXPECT_EQ(each.expected, got) << "flag " << (each.flag ? each.flag : "-") << ", text "
                                  << (each.text ? each.text : "-") << ", --backend "
                                  << each.shorthand << ", environment "
                                  << (each.environment ? each.environment : "-")
                                  << (config ? "" : ": " + config.error().message);
  }
}

TEST(Config, a_bad_environment_is_an_error_only_where_it_is_used) {
  ConfigSources sources;
  sources.environment = "FLASH_ATN";
  EXPECT_HAS(refused(sources),
             "config: FOVEA_BACKEND: backend 'FLASH_ATN' is not known; did you "
             "mean 'FLASH_ATTN'?");
  sources.text = R"({"default": "FA3"})";
  EXPECT_EQ(backend::FLASH_ATTN_3, parsed(sources).default_spec->backend);
}

TEST(Config, a_default_from_the_environment_says_so) {
  ConfigSources sources;
  sources.text = R"({"per_role": {"cross": "FA3"}})";
  sources.environment = "sdpa";
  const AttentionConfig config = parsed(sources);
  EXPECT_TRUE(config.default_from_environment);
  EXPECT_EQ("environment FOVEA_BACKEND", config.resolve("self").source);
  EXPECT_EQ("attention_config.per_role['cross']", config.resolve("cross").source);
  sources.backend = "FA2";
  EXPECT_EQ("attention_config.default", parsed(sources).resolve("self").source);
}

TEST(Config, the_shorthand_conflict_says_what_to_do) {
  ConfigSources sources;
  sources.text = R"({"default": "FA3"})";
  sources.origin = "attn.json";
  sources.backend = "FA2";
  EXPECT_EQ(
      "attn.json: --backend: conflicts with the default of attn.json; keep one of them "
      "(--config.default.backend overrides)",
      refused(sources));
}

TEST(Config, a_shorthand_takes_flags_along) {
  ConfigSources sources;
  sources.backend = "TRTLLM_ATTN";
  sources.flags = {{"default.skip_softmax.threshold", "0.1"}};
  EXPECT_EQ(0.1, parsed(sources).default_spec->skip_softmax->threshold);
  sources.backend = "no_such";
  sources.flags.clear();
  EXPECT_HAS(refused(sources), "--backend: backend 'no_such' is not known");
}

TEST(Config, parsing_reads_no_environment) {
  setenv("FOVEA_BACKEND", "FA2", 1);
  const auto config = parse_config("{}");
  unsetenv("FOVEA_BACKEND");
  ASSERT_TRUE(config);
  EXPECT_EQ(std::nullopt, config->default_spec);
}

TEST(Config, no_text_is_not_a_document) {
  for (const char* text : {"", "  \n"}) {
    const auto config = parse_config(text);
    ASSERT_FALSE(config);
    EXPECT_EQ("config: there is no text; an empty configuration is {}", config.error().message);
  }
}

TEST(Config, a_removed_default_is_remembered_only_when_auto_was_written) {
  EXPECT_TRUE(parsed(R"({"default": "auto"})").environment_disabled);
  EXPECT_FALSE(parsed(R"({"default": null})").environment_disabled);
  EXPECT_FALSE(parsed("{}").environment_disabled);
}

TEST(Config, errors_carry_reasons_for_programs) {
  ConfigSources sources;
  sources.text = R"({"default": {"backend": "FLASH_ATTN", "quant": {}, "scale": 0}})";
  const auto config = build_config(sources);
  ASSERT_FALSE(config);
  ASSERT_EQ(2u, config.error().reasons.size());
  const Reason& scale = config.error().reasons[0];
  EXPECT_EQ(ReasonCode::option_value, scale.code);
  EXPECT_EQ("default.scale", scale.field);
  EXPECT_EQ("0", scale.got);
  EXPECT_EQ("a finite number above 0", scale.accepted);
  const Reason& owner = config.error().reasons[1];
  EXPECT_EQ(ReasonCode::option_owner, owner.code);
  EXPECT_EQ("default.quant", owner.field);
  EXPECT_EQ("TRTLLM_ATTN, FLASHINFER_ATTN", owner.accepted);
}

}  // namespace
}  // namespace fovea
