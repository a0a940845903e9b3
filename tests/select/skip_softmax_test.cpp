// skip_softmax from the configuration to the kernel: who owns it, which threshold a layer gets from
// its checkpoint, and what is refused. Only the kernel is replaced.
#include <cmath>

#include "tests/select/vendor_double.hpp"

namespace fovea {
namespace {

using test::VendorCall;
using test::VendorDouble;

constexpr const char* kBlackwell = "sm=100,cuda=13.0,trtllm=1,flashinfer=0.6.18";
constexpr const char* kCall = "bf16 b1 h2 s16 d128";

DeviceFacts blackwell() { return parse_facts(PlatformId::cuda, kBlackwell).value(); }

AttentionConfig config_of(const std::string& skip, const std::string& backend = "TRTLLM_ATTN") {
  auto config = parse_config(R"j({"default": {"backend": ")j" + backend +
                             R"j(", "skip_softmax": )j" + skip + "}}");
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config.value_or(AttentionConfig{});
}

std::shared_ptr<const SkipSoftmaxCalibration> calibration() {
  auto read = parse_calibration(R"j({"transformer": {"config_groups": {"group_0": {
    "algorithm": "skip_softmax", "ignore": ["blocks.0.attn1"],
    "threshold_scale_factor": {"formula": "a * exp(b * target_sparsity)",
                               "coefficients": {"a": 1443.5, "b": 4.304}}}}}})j");
  EXPECT_TRUE(read.has_value()) << (read ? "" : read.error().message);
  return std::make_shared<const SkipSoftmaxCalibration>(*std::move(read));
}

Attention layer_of(const AttentionConfig& config, std::string name = {}, bool calibrated = false) {
  LayerOptions options;
  options.name = std::move(name);
  if (calibrated) options.calibration = calibration();
  auto layer = Attention::create(options, config, &serial_executor(), blackwell());
  EXPECT_TRUE(layer.has_value()) << (layer ? "" : layer.error().message);
  return std::move(layer).value();
}

ExplainEntry explained(const AttentionConfig& config, const char* problem = kCall) {
  ExplainQuery query;
  if (problem != nullptr) query.problem = parse_problem(problem).value();
  ExecutionContext context;
  context.facts = blackwell();
  context.local = false;
  const Explanation all = explain(config, make_platform(blackwell()), {query}, context);
  return all.entries.at(0);
}

// Bug: the owner itself refused the block.
TEST(SkipSoftmax, its_owner_takes_a_threshold) {
  VendorDouble trtllm("flashinfer");
  const Attention layer = layer_of(config_of(R"j({"threshold": 0.01})j"));
  VendorCall call(kCall);
  const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), {});
  EXPECT_EQ(report.support, SupportStatus::unmigrated) << sentence(report.reasons);
  EXPECT_TRUE(report.lossy);
  const auto ran = call.run(layer);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  ASSERT_TRUE(trtllm.last().spec);
  EXPECT_EQ(trtllm.last().spec->skip_softmax->threshold, 0.01);
  // Without the block the same path is exact.
  AttentionConfig plain;
  plain.default_spec.emplace().backend = backend::TRTLLM_ATTN;
  EXPECT_FALSE(layer_of(plain).resolve_execution_path(call.problem(), {}).lossy);
}

TEST(SkipSoftmax, a_target_needs_the_calibration_of_the_layer) {
  VendorDouble trtllm("flashinfer");
  const AttentionConfig config = config_of(R"j({"target_sparsity": 0.5})j");
  VendorCall call(kCall);
  struct Case {
    const char* name;
    bool calibrated;
  };
  for (const Case& c : {Case{"transformer.blocks.1.attn1", false}, Case{"", true},
                        Case{"blocks.1.attn1", true}, Case{"transformer_2.blocks.1.attn1", true}}) {
    const auto refused = call.run(layer_of(config, c.name, c.calibrated));
    ASSERT_FALSE(refused.has_value()) << c.name;
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    ASSERT_EQ(refused.error().reasons.size(), 1U) << refused.error().message;
    const Reason& reason = refused.error().reasons[0];
    EXPECT_EQ(reason.code, ReasonCode::option_value);
    EXPECT_EQ(reason.field, "skip_softmax.target_sparsity");
    EXPECT_EQ(reason.got, "0.5");
    EXPECT_EQ(reason.accepted, "a checkpoint's calibration of this layer");
    EXPECT_NE(reason.remedy.find("or set threshold instead"), std::string::npos);
  }
  EXPECT_TRUE(trtllm.calls().empty());
  const auto ran = call.run(layer_of(config, "transformer.blocks.1.attn1", true));
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  const SkipSoftmaxOptions& seen = *trtllm.last().spec->skip_softmax;
  EXPECT_EQ(seen.calibration, (LayerCalibration{1443.5, 4.304, {}}));
  EXPECT_DOUBLE_EQ(*decide_skip(seen, 16, {}).threshold, 1443.5 * std::exp(4.304 * 0.5) / 16);
}

// `prefer` passes over it, as over any refusal.
TEST(SkipSoftmax, a_preference_falls_through_without_calibration) {
  AttentionConfig config = config_of(R"j({"target_sparsity": 0.5})j");
  config.default_spec->strictness = Strictness::prefer;
  const ExplainEntry entry = explained(config);
  ASSERT_FALSE(entry.trail.empty());
  EXPECT_EQ(entry.trail[0].verdict, TrailVerdict::rejected);
  EXPECT_EQ(entry.trail[0].reasons.at(0).field, "skip_softmax.target_sparsity");
}

TEST(SkipSoftmax, ignored_layers_run_dense_and_exact) {
  VendorDouble trtllm("flashinfer");
  const Attention layer =
      layer_of(config_of(R"j({"target_sparsity": 0.5})j"), "transformer.blocks.0.attn1", true);
  VendorCall call(kCall);
  const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), {});
  EXPECT_EQ(report.support, SupportStatus::unmigrated) << sentence(report.reasons);
  EXPECT_FALSE(report.lossy);
}

TEST(SkipSoftmax, explain_states_the_threshold) {
  const AttentionConfig config = config_of(R"j({"target_sparsity": 0.5,
                                               "disabled_until_timestep": 0.86})j");
  ExplainEntry entry = explained(config);
  ASSERT_TRUE(entry.skip);
  EXPECT_EQ(entry.skip->state, SkipState::uncalibrated);
  EXPECT_EQ(entry.report.support, SupportStatus::unsupported);
  entry = explained(calibrate(config, *calibration(), "transformer.blocks.7.attn1"));
  EXPECT_EQ(entry.skip->state, SkipState::unknown_timestep);
  const double factor = 1443.5 * std::exp(4.304 * 0.5);
  EXPECT_DOUBLE_EQ(entry.skip->factor.value(), factor);
  EXPECT_DOUBLE_EQ(entry.skip->threshold.value(), factor / 16);
  EXPECT_EQ(entry.report.support, SupportStatus::unmigrated);
  entry = explained(calibrate(config, *calibration(), "transformer.blocks.7.attn1"), nullptr);
  EXPECT_DOUBLE_EQ(entry.skip->factor.value(), factor);
  EXPECT_FALSE(entry.skip->threshold);
  entry = explained(calibrate(config, *calibration(), "transformer.blocks.0.attn1"));
  EXPECT_EQ(entry.skip->state, SkipState::ignored_layer);
  EXPECT_EQ(entry.skip_ignored_by, "blocks.0.attn1");
  AttentionConfig plain;
  plain.default_spec.emplace().backend = backend::TRTLLM_ATTN;
  EXPECT_FALSE(explained(plain).skip);
}

// FLASH_ATTN owns the block as an extension; no path of it skips tiles yet, and every one says so.
TEST(SkipSoftmax, paths_without_a_variant_refuse_by_name) {
  const AttentionConfig config = config_of(R"j({"threshold": 0.01})j", "FLASH_ATTN");
  for (const char* facts : {"sm=90", "sm=80", "sm=100,fa4=4.0"}) {
    ExecutionContext context;
    context.facts = parse_facts(PlatformId::cuda, facts).value();
    context.local = false;
    ExplainQuery query;
    query.problem = parse_problem(kCall).value();
    const Explanation all = explain(config, make_platform(context.facts), {query}, context);
    const ExplainEntry& entry = all.entries.at(0);
    EXPECT_EQ(entry.report.support, SupportStatus::unsupported) << facts;
    const bool named = std::any_of(entry.report.reasons.begin(), entry.report.reasons.end(),
                                   [](const Reason& r) { return r.field == "skip_softmax"; });
    EXPECT_TRUE(named) << facts << ": " << sentence(entry.report.reasons);
  }
  for (const char* name : {"CUDNN_ATTN", "FLASHINFER_ATTN", "RADIAL_ATTN", "TORCH_SDPA"})
    EXPECT_FALSE(parse_config(R"j({"default": {"backend": ")j" + std::string(name) +
                              R"j(", "skip_softmax": {"threshold": 0.01}}})j")
                     .has_value())
        << name;
}

}  // namespace
}  // namespace fovea
