// examples/plugin, built outside this tree, as a backend of its own and behind an existing name.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "fovea/attention.hpp"
#include "fovea/c_api.h"
#include "fovea/plugin_loader.hpp"
#include "fovea/registry.hpp"

namespace fovea {
namespace {

AttentionConfig config_of(const char* backend) {
  ConfigSources sources;
  sources.backend = backend;
  return *build_config(sources);
}

struct Inputs {
  explicit Inputs(int64_t length) : seq(length) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = std::sin(0.37f * static_cast<float>(i));
      k[i] = std::cos(0.23f * static_cast<float>(i));
      v[i] = std::sin(0.11f * static_cast<float>(i) + 1.0f);
    }
  }
  AttentionTensors tensors() {
    AttentionTensors t;
    t.q = make_view(q.data(), kF32, {2, seq, 2, 8});
    t.k = make_view(k.data(), kF32, {2, seq, 2, 8});
    t.v = make_view(v.data(), kF32, {2, seq, 2, 8});
    return t;
  }
  int64_t seq;
  std::vector<float> q = std::vector<float>(static_cast<size_t>(2 * seq * 2 * 8));
  std::vector<float> k = q;
  std::vector<float> v = q;
};

const float* values(const OwnedTensor& t) { return static_cast<const float*>(t.view().data); }

// Compares with REFERENCE. Both sum in float64 and round once to float32.
void expect_agreement(const char* backend, bool causal) {
  Inputs inputs(5);
  CallOptions options;
  options.is_causal = causal;
  options.return_lse = true;
  const auto layer = Attention::create({}, config_of(backend));
  const auto oracle = Attention::create({}, config_of("REFERENCE"));
  ASSERT_TRUE(layer.has_value());
  ASSERT_TRUE(oracle.has_value());
  const auto got = (*layer)(inputs.tensors(), options);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  const auto expected = (*oracle)(inputs.tensors(), options);
  ASSERT_TRUE(expected.has_value());
  EXPECT_EQ(got->receipt->path, "cpu.naive");
  EXPECT_EQ(got->receipt->provider, "plugin naive 1.0");
  EXPECT_EQ(name(got->receipt->backend), backend);
  for (int64_t i = 0; i < got->out.view().numel(); ++i)
    EXPECT_FLOAT_EQ(values(got->out)[i], values(expected->out)[i]) << i;
  for (int64_t i = 0; i < got->lse.view().numel(); ++i)
    EXPECT_FLOAT_EQ(values(got->lse)[i], values(expected->lse)[i]) << i;
}

TEST(PluginExample, AddsABackend) {
  const auto loaded = load_plugin(EXAMPLE_PLUGIN);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->name, "naive");
  ASSERT_EQ(loaded->backends.size(), 1u);
  ASSERT_TRUE(loaded->backends[0].name.has_value());
  EXPECT_EQ(name(*loaded->backends[0].name), "NAIVE_ATTN");
  EXPECT_FALSE(loaded->backends[0].replaced);
  expect_agreement("NAIVE_ATTN", false);
  expect_agreement("NAIVE_ATTN", true);
}

TEST(PluginExample, ReplacesWhatStandsBehindAName) {
  ASSERT_TRUE(enable_plugin_paths().has_value());
  ASSERT_TRUE(
      register_backend(backend::FLASH_ATTN, "plugin:" + std::string(EXAMPLE_PLUGIN) + "#naive")
          .has_value());
  expect_agreement("FLASH_ATTN", true);
  clear_override(backend::FLASH_ATTN);
}

TEST(PluginExample, ExplainsItsRefusals) {
  ASSERT_TRUE(load_plugin(EXAMPLE_PLUGIN).has_value());
  const auto layer = Attention::create({}, config_of("NAIVE_ATTN"));
  ASSERT_TRUE(layer.has_value());
  const auto decision = layer->resolve(*parse_problem("bf16 b1 h2 s64 d64 window=3,0"));
  EXPECT_EQ(decision->report.support, SupportStatus::unsupported);
  ASSERT_EQ(decision->report.reasons.size(), 2u);
  EXPECT_EQ(decision->report.reasons[0].code, ReasonCode::dtype);
  EXPECT_EQ(decision->report.reasons[0].accepted, "f32");
  EXPECT_EQ(decision->report.reasons[1].code, ReasonCode::window);
}

TEST(PluginExample, DeclaresItsOptions) {
  ASSERT_TRUE(load_plugin(EXAMPLE_PLUGIN).has_value());
  const auto accepted = parse_config(
      R"({"default": {"backend": "NAIVE_ATTN", "extra": {"NAIVE_ATTN": {"accumulate": "f32"}}}})");
  ASSERT_TRUE(accepted) << accepted.error().message;
  const auto layer = Attention::create({}, *accepted);
  ASSERT_TRUE(layer.has_value());
  Inputs inputs(5);
  const auto got = (*layer)(inputs.tensors());
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->receipt->accumulate, "f32");
  EXPECT_EQ(
      (*(*Attention::create({}, config_of("NAIVE_ATTN")))(inputs.tensors())).receipt->accumulate,
      "f64");
  const struct {
    const char* options;
    const char* cause;
  } wrong[] = {
      {R"({"accumulate": "f16"})", "one of f64, f32"},
      {R"({"acumulate": "f32"})", "did you mean 'accumulate'"},
      {R"({"accumulate": 32})", "one of f64, f32"},
  };
  for (const auto& c : wrong) {
    const auto refused = parse_config(
        std::string(R"({"default": {"backend": "NAIVE_ATTN", "extra": {"NAIVE_ATTN": )") +
        c.options + "}}}");
    ASSERT_FALSE(refused) << c.options;
    EXPECT_NE(refused.error().message.find(c.cause), std::string::npos) << refused.error().message;
  }
  const auto foreign = parse_config(
      R"({"default": {"backend": "FLASH_ATTN", "extra": {"NAIVE_ATTN": {"accumulate": "f32"}}}})");
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("NAIVE_ATTN"), std::string::npos);
}

TEST(PluginExample, AddsAPlatform) {
  const auto loaded = load_plugin(EXAMPLE_PLUGIN);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->platforms, std::vector<std::string>{"toy"});
  const auto id = parse_platform("toy");
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_FALSE(parse_facts(*id, ""));
  const auto facts = parse_facts(*id, "memory=64");
  ASSERT_TRUE(facts) << facts.error().message;

  const auto layer = Attention::create({}, {}, nullptr, *facts);
  ASSERT_TRUE(layer.has_value()) << layer.error().message;
  Inputs inputs(5);
  const auto got = (*layer)(inputs.tensors());
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(name(got->receipt->backend), "NAIVE_ATTN");
  EXPECT_EQ(layer->resolve(*parse_problem("f32 b1 h2 s8 d8"))->source, "platform default");

  const auto other = Attention::create({}, config_of("FLASH_ATTN"), nullptr, *facts);
  ASSERT_TRUE(other.has_value());
  const auto refused = (*other)(inputs.tensors());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("NAIVE_ATTN only"), std::string::npos)
      << refused.error().message;
}

TEST(PluginExample, LoadsThroughTheCInterface) {
  char* json = nullptr;
  ASSERT_EQ(fovea_load_plugin(EXAMPLE_PLUGIN, &json, nullptr), FOVEA_OK);
  EXPECT_NE(std::string(json).find("\"NAIVE_ATTN\""), std::string::npos) << json;
  fovea_string_free(json);
  fovea_error* error = nullptr;
  EXPECT_EQ(fovea_load_plugin("/nonexistent/plugin.so", nullptr, &error),
            static_cast<int32_t>(ErrorCode::invalid_file));
  EXPECT_NE(std::string(fovea_error_message(error)).find("/nonexistent/plugin.so"),
            std::string::npos);
  fovea_error_free(error);
}

TEST(PluginExample, IsFoundThroughTheEnvironment) {
  const std::string folder = std::filesystem::path(EXAMPLE_PLUGIN).parent_path().string();
  ASSERT_EQ(setenv("FOVEA_PLUGIN_PATH", (folder + ":").c_str(), 1), 0);
  const PluginSearch found = load_plugins_from_environment();
  unsetenv("FOVEA_PLUGIN_PATH");
  EXPECT_TRUE(found.failed.empty());
  ASSERT_EQ(found.loaded.size(), 1u);
  EXPECT_EQ(found.loaded[0].name, "naive");
  EXPECT_TRUE(load_plugins_from_environment().loaded.empty());
}

}  // namespace
}  // namespace fovea
