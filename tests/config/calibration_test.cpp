#include "fovea/calibration.hpp"

#include <cmath>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

// A sparse_attention_config with one skip_softmax group.
std::string group(const std::string& rest = {}) {
  return R"j({"config_groups": {"group_0": {"algorithm": "skip_softmax",
    "threshold_scale_factor": {"formula": "a * exp(b * target_sparsity)",
                               "coefficients": {"a": 1443.5, "b": 4.304}})j" +
         rest + "}}}";
}

std::string fault(const std::string& json) {
  const auto read = parse_calibration(json);
  if (read) return "accepted";
  EXPECT_EQ(read.error().code, ErrorCode::invalid_config);
  return read.error().message;
}

SkipSoftmaxCalibration calibration(const std::string& json) {
  auto read = parse_calibration(json);
  EXPECT_TRUE(read.has_value()) << (read ? "" : read.error().message);
  return read.value_or(SkipSoftmaxCalibration{});
}

AttentionConfig trtllm(double target) {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = backend::TRTLLM_ATTN;
  spec.skip_softmax.emplace().target_sparsity = target;
  return config;
}

// What a layer of this name gets.
std::optional<LayerCalibration> of_layer(const std::string& json, std::string_view layer) {
  return calibrate(trtllm(0.5), calibration(json), layer).default_spec->skip_softmax->calibration;
}

TEST(Calibration, reads_every_form_of_a_document) {
  ExpertCalibration wanted;
  wanted.a = 1443.5;
  wanted.b = 4.304;
  wanted.ignore = {"blocks.0.attn1", "blocks.3?.*"};
  wanted.target_sparsity = 0.45;
  wanted.disabled_until_timestep = 0.8;
  const std::string bare = group(R"j(, "target_sparsity": 0.45, "disabled_until_timestep": 0.8,
      "ignore": ["blocks.0.attn1", "blocks.3?.*"])j");
  EXPECT_EQ(calibration(bare).experts.at(""), wanted);
  const std::string file =
      R"j({"_class_name": "WanTransformer3DModel", "num_layers": 40, "sparse_attention_config": )j" +
      bare + "}";
  EXPECT_EQ(calibration(file).experts.at(""), wanted);
  const auto both =
      calibration(R"j({"transformer": )j" + file + R"j(, "transformer_2": )j" + group() + "}");
  EXPECT_EQ(both.experts.size(), 2U);
  EXPECT_EQ(both.experts.at("transformer"), wanted);
  EXPECT_EQ(both.experts.at("transformer_2").b, 4.304);
}

TEST(Calibration, reads_the_phase_of_a_diffusion_transformer) {
  const auto read = calibration(R"j({"config_groups": {
    "other": {"algorithm": "vsa", "anything": 1},
    "group_0": {"algorithm": "skip_softmax",
      "target_sparsity": {"prefill": 0.5, "decode": 0.3},
      "threshold_scale_factor": {"formula": "a*exp(b*target_sparsity)",
        "prefill": {"a": 100, "b": 5}, "decode": {"a": 0.05, "b": 10}}}}})j");
  EXPECT_EQ(read.experts.at("").a, 100);
  EXPECT_EQ(read.experts.at("").b, 5);
  EXPECT_EQ(read.experts.at("").target_sparsity, 0.5);
}

TEST(Calibration, refuses_by_place) {
  const std::pair<std::string, const char*> cases[] = {
      {"[]", "expected a map"},
      {"{}", "holds no sparse_attention_config"},
      {R"j({"num_layers": 40, "name": "wan"})j", "holds no sparse_attention_config"},
      {R"j({"transformer": )j" + group() + R"j(, "transformer_2": {}})j",
       "transformer_2: holds no sparse_attention_config"},
      {R"j({"sparse_attention_config": {}})j", "lacks config_groups"},
      {R"j({"config_groups": {}})j", "has no group of algorithm skip_softmax"},
      {R"j({"config_groups": {"g": {"ignore": []}}})j", "config_groups.g: lacks the name"},
      {R"j({"config_groups": {"g": {"algorithm": "skip_softmax"}}})j",
       "lacks threshold_scale_factor"},
      {group(R"j(, "ingore": [])j"), "config_groups.group_0.ingore: unknown key"},
      {group(R"j(, "ignore": "blocks.0")j"), "expected a list of patterns"},
      {group(R"j(, "ignore": [""])j"), "ignore[0]: expected a pattern of layer names"},
      {group(R"j(, "target_sparsity": 1.5)j"), "expected a number in [0, 1], found 1.5"},
      {group(R"j(, "target_sparsity": true)j"), "expected a number in [0, 1], found true"},
      {group(R"j(, "disabled_until_timestep": -1)j"), "expected a number in [0, 1], found -1"},
  };
  for (const auto& [json, piece] : cases) EXPECT_HAS(fault(json), piece);
  const auto factor = [](const std::string& text) {
    return fault(R"j({"config_groups": {"g": {"algorithm": "skip_softmax",
        "threshold_scale_factor": )j" +
                 text + "}}}");
  };
  EXPECT_HAS(
      factor(R"j({"formula": "a * b ** target_sparsity", "coefficients": {"a": 1, "b": 2}})j"),
      "is not a formula known here: a*exp(b*target_sparsity)");
  EXPECT_HAS(factor(R"j({"coefficients": {"a": 1, "b": 2}})j"), "lacks a formula");
  EXPECT_HAS(factor(R"j({"formula": "a*exp(b*target_sparsity)"})j"), "needs the coefficients");
  EXPECT_HAS(factor(R"j({"formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 1}})j"),
             "coefficients: lacks b");
  EXPECT_HAS(
      factor(R"j({"formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 0, "b": 1}})j"),
      "expected a number above 0, found 0");
  EXPECT_HAS(
      factor(R"j({"formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 9, "b": 1e300}})j"),
      "coefficients: a*exp(b) is beyond every number");
  EXPECT_HAS(
      factor(R"j({"formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 1, "b": true}})j"),
      "expected a number, found true");
  const std::string twice = R"j({"config_groups": {"x": {"algorithm": "skip_softmax",
    "threshold_scale_factor": {"formula": "a*exp(b*target_sparsity)", "prefill": {"a": 1, "b": 1}}},
    "y": {"algorithm": "skip_softmax"}}})j";
  EXPECT_HAS(fault(twice), "has several groups of algorithm skip_softmax");
}

TEST(Calibration, layers_get_the_coefficients_of_their_transformer) {
  const std::string two =
      R"j({"transformer": )j" + group() + R"j(, "transformer_2": {"config_groups":
    {"g": {"algorithm": "skip_softmax", "threshold_scale_factor": {
    "formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 7, "b": 2}}}}}})j";
  EXPECT_EQ(of_layer(two, "transformer.blocks.5.attn1")->a, 1443.5);
  EXPECT_EQ(of_layer(two, "transformer_2.blocks.5.attn1")->a, 7);
  EXPECT_EQ(of_layer(two, "_orig_mod.transformer_2._orig_mod.blocks.5.attn1")->a, 7);
  EXPECT_EQ(of_layer(two, "transformer_2")->a, 7);
  // No transformer of that name: nothing is guessed.
  EXPECT_FALSE(of_layer(two, "blocks.5.attn1"));
  EXPECT_FALSE(of_layer(two, "transformer_3.blocks.5.attn1"));
  EXPECT_FALSE(of_layer(two, ""));
  // One unnamed transformer is everybody's.
  EXPECT_EQ(of_layer(group(), "blocks.5.attn1")->a, 1443.5);
  EXPECT_EQ(of_layer(group(), "transformer_2.blocks.5.attn1")->a, 1443.5);
}

TEST(Calibration, the_longest_name_wins) {
  const std::string nested = R"j({"model": )j" + group() + R"j(, "model.fine": {"config_groups":
    {"g": {"algorithm": "skip_softmax", "threshold_scale_factor": {
    "formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 7, "b": 2}}}}}})j";
  EXPECT_EQ(of_layer(nested, "model.fine.blocks.0")->a, 7);
  EXPECT_EQ(of_layer(nested, "model.finer.blocks.0")->a, 1443.5);
}

TEST(Calibration, ignored_layers_stay_dense) {
  const std::string json = group(
      R"j(, "ignore": ["blocks.0.attn1", "blocks.1?.*", "transformer_2.blocks.7", "*.refiner[0-2]",
                      "blocks.[!0-8].last", "odd["])j");
  const std::pair<const char*, const char*> cases[] = {
      {"blocks.0.attn1", "blocks.0.attn1"},
      {"blocks.0.attn1.to_q", "blocks.0.attn1"},  // below a match
      {"transformer.blocks.0.attn1", "blocks.0.attn1"},
      {"transformer_2.blocks.0.attn1", "blocks.0.attn1"},
      {"_orig_mod.blocks.0.attn1", "blocks.0.attn1"},
      {"blocks.0.attn10", ""},
      {"blocks.0.attn2", ""},
      {"other.blocks.0.attn1", ""},
      {"blocks.12.attn1", "blocks.1?.*"},
      {"blocks.1.attn1", ""},
      {"transformer_2.blocks.7.attn1", "transformer_2.blocks.7"},
      {"transformer.blocks.7.attn1", ""},
      {"x.y.refiner2", "*.refiner[0-2]"},
      {"x.y.refiner3", ""},
      {"blocks.9.last", "blocks.[!0-8].last"},
      {"blocks.8.last", ""},
      {"odd[", "odd["},
  };
  for (const auto& [layer, pattern] : cases) {
    const auto found = of_layer(json, layer);
    ASSERT_TRUE(found) << layer;
    EXPECT_EQ(found->ignored_by, pattern) << layer;
  }
}

TEST(Calibration, touches_only_entries_that_ask_for_a_target) {
  AttentionConfig config = trtllm(0.5);
  config.per_role["cross"].backend = backend::FLASH_ATTN;
  AttentionSpec& fixed = config.per_role["self"];
  fixed.backend = backend::TRTLLM_ATTN;
  fixed.skip_softmax.emplace().threshold = 0.01;
  const AttentionConfig out = calibrate(config, calibration(group()), "blocks.0");
  EXPECT_EQ(out.per_role, config.per_role);
  EXPECT_TRUE(out.default_spec->skip_softmax->calibration);
  // It comes from the checkpoint and goes into no configuration.
  EXPECT_EQ(to_json(out), to_json(config));
}

TEST(SkipDecision, factor_and_threshold) {
  SkipSoftmaxOptions options;
  EXPECT_EQ(decide_skip(options, 4096, {}).state, SkipState::off);
  options.threshold = 0.25;
  SkipDecision skip = decide_skip(options, 4096, {});
  EXPECT_EQ(skip.state, SkipState::skips);
  EXPECT_EQ(skip.threshold, 0.25);
  EXPECT_EQ(skip.factor, 1024);
  EXPECT_EQ(decide_skip(options, 0, {}).factor, std::nullopt);

  options = {};
  options.target_sparsity = 0.5;
  skip = decide_skip(options, 4096, {});
  EXPECT_EQ(skip.state, SkipState::uncalibrated);
  EXPECT_FALSE(skip.factor || skip.threshold);
  options.calibration = LayerCalibration{1443.5, 4.304, {}};
  skip = decide_skip(options, 4096, {});
  EXPECT_EQ(skip.state, SkipState::skips);
  const double factor = 1443.5 * std::exp(4.304 * 0.5);
  EXPECT_DOUBLE_EQ(*skip.factor, factor);
  EXPECT_DOUBLE_EQ(*skip.threshold, factor / 4096);
  options.calibration->ignored_by = "blocks.0";
  skip = decide_skip(options, 4096, {});
  EXPECT_EQ(skip.state, SkipState::ignored_layer);
  EXPECT_FALSE(skip.factor || skip.threshold);
}

TEST(SkipDecision, the_gate_opens_at_its_timestep) {
  SkipSoftmaxOptions options;
  options.threshold = 0.25;
  const auto state = [&](std::optional<double> timestep) {
    return decide_skip(options, 64, timestep).state;
  };
  EXPECT_EQ(state(1.0), SkipState::skips);  // no gate
  options.disabled_until_timestep = 0.86;
  EXPECT_EQ(state(1.0), SkipState::gated);
  EXPECT_EQ(state(std::nextafter(0.86, 1.0)), SkipState::gated);
  EXPECT_EQ(state(0.86), SkipState::skips);
  EXPECT_EQ(state(0.0), SkipState::skips);
  EXPECT_EQ(state(std::nullopt), SkipState::unknown_timestep);
  EXPECT_EQ(state(std::nan("")), SkipState::gated);
  // The threshold is known before the gate opens.
  EXPECT_EQ(decide_skip(options, 64, 1.0).threshold, 0.25);
}

}  // namespace
}  // namespace fovea
