// skip_softmax from the configuration to the kernel: who owns it, which threshold a layer gets from
// its checkpoint, and what is refused. Only the kernel is replaced.
#include <cmath>
#include <map>

#include "fovea/c_api.h"
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

// Bug: nobody told the kernel where the run stands, so a gate was the kernel's to guess.
TEST(SkipSoftmax, the_timestep_of_a_call_settles_its_gate) {
  VendorDouble trtllm("flashinfer");
  const Attention layer =
      layer_of(config_of(R"j({"threshold": 0.01, "disabled_until_timestep": 0.86})j"));
  VendorCall call(kCall);
  struct Case {
    std::optional<double> timestep;
    SkipState state;
  };
  std::map<SkipState, std::shared_ptr<const Receipt>> receipts;
  for (const Case& c : {Case{1.0, SkipState::gated}, Case{0.87, SkipState::gated},
                        Case{0.86, SkipState::skips}, Case{0.0, SkipState::skips},
                        Case{{}, SkipState::unknown_timestep}, Case{0.9, SkipState::gated}}) {
    SCOPED_TRACE(name(c.state));
    call.options.timestep = c.timestep;
    const auto ran = call.run(layer);
    ASSERT_TRUE(ran.has_value()) << ran.error().message;
    ASSERT_TRUE(trtllm.last().skip);
    EXPECT_EQ(trtllm.last().skip->state, c.state);
    EXPECT_EQ(trtllm.last().skip->threshold, 0.01);
    EXPECT_DOUBLE_EQ(trtllm.last().skip->factor.value(), 0.16);
    ASSERT_TRUE(ran->receipt->skip);
    EXPECT_EQ(ran->receipt->skip->state, c.state);
    // One plan for each side of the gate, whatever the number of steps.
    const auto [first, is_new] = receipts.emplace(c.state, ran->receipt);
    EXPECT_EQ(first->second, ran->receipt);
    // The report says the same beforehand, also to a host that has no tensors yet.
    const auto asked = layer.resolve_execution_path(call.tensors, call.options, {});
    ASSERT_TRUE(asked.has_value());
    EXPECT_EQ(asked->lossy, c.state == SkipState::skips);
    ExecutionContext context;
    context.timestep = c.timestep;
    EXPECT_EQ(layer.resolve_execution_path(call.problem(), context).lossy,
              c.state == SkipState::skips);
  }
  EXPECT_EQ(receipts.size(), 3U);
}

fovea_tensor to_c(const TensorView& view) {
  fovea_tensor t{};
  t.data = view.data;
  t.device_type = static_cast<int32_t>(view.device.type);
  t.dtype_code = view.dtype.code;
  t.dtype_bits = view.dtype.bits;
  t.dtype_lanes = view.dtype.lanes;
  t.rank = view.rank;
  std::copy(view.shape.begin(), view.shape.end(), t.shape);
  std::copy(view.stride.begin(), view.stride.end(), t.stride);
  return t;
}

// A plan that a caller keeps does not run on the other side of its gate.
TEST(SkipSoftmax, plans_of_the_c_interface_are_for_one_side) {
  VendorDouble trtllm("flashinfer");
  VendorCall vendor(kCall);
  std::vector<uint16_t> memory(16 * 2 * 128);
  fovea_config* config = nullptr;
  ASSERT_EQ(fovea_config_create(R"j({"default": {"backend": "TRTLLM_ATTN", "skip_softmax":
      {"threshold": 0.01, "disabled_until_timestep": 0.86}}})j",
                                nullptr, 0, &config, nullptr),
            FOVEA_OK);
  fovea_layer_options options{};
  options.struct_size = sizeof options;
  options.platform = "cuda";
  options.facts = kBlackwell;
  fovea_attention* layer = nullptr;
  ASSERT_EQ(fovea_attention_create(&options, config, &layer, nullptr), FOVEA_OK);
  fovea_call call{};
  call.struct_size = sizeof call;
  call.window_left = call.window_right = -1;
  call.q = to_c(vendor.tensors.q);
  call.k = to_c(vendor.tensors.k);
  call.v = to_c(vendor.tensors.v);
  call.out = to_c(make_view(memory.data(), kBF16, {1, 16, 2, 128}));
  const auto at = [&](double timestep) {
    call.timestep = timestep;
    call.has_timestep = timestep < 0 ? 0 : 1;
  };
  fovea_plan* plan = nullptr;
  at(0.9);
  ASSERT_EQ(fovea_attention_plan(layer, &call, &plan, nullptr), FOVEA_OK);
  const auto run = [&] {
    fovea_error* error = nullptr;
    const int32_t code = fovea_plan_run(plan, &call, nullptr, 0, &error);
    if (error != nullptr) {
      EXPECT_NE(std::string(fovea_error_message(error)).find("another side"), std::string::npos);
      fovea_error_free(error);
    }
    return code;
  };
  EXPECT_EQ(run(), FOVEA_OK);
  EXPECT_EQ(trtllm.last().skip->state, SkipState::gated);
  at(0.99);
  EXPECT_EQ(run(), FOVEA_OK);
  for (const double other : {0.86, 0.1, -1.0}) {
    at(other);
    EXPECT_EQ(run(), static_cast<int32_t>(ErrorCode::invalid_argument)) << other;
  }
  EXPECT_EQ(trtllm.calls().size(), 2U);
  fovea_plan_free(plan);
  fovea_attention_free(layer);
  fovea_config_free(config);
}

TEST(SkipSoftmax, a_layer_without_a_gate_does_not_depend_on_the_timestep) {
  VendorDouble trtllm("flashinfer");
  const Attention layer = layer_of(config_of(R"j({"threshold": 0.01})j"));
  VendorCall call(kCall);
  std::shared_ptr<const Receipt> first;
  for (const std::optional<double> timestep :
       {std::optional<double>(1.0), std::optional<double>(0.2), std::optional<double>()}) {
    call.options.timestep = timestep;
    const auto ran = call.run(layer);
    ASSERT_TRUE(ran.has_value()) << ran.error().message;
    EXPECT_EQ(trtllm.last().skip->state, SkipState::skips);
    if (first == nullptr) first = ran->receipt;
    EXPECT_EQ(ran->receipt, first);
  }
  AttentionConfig plain;
  plain.default_spec.emplace().backend = backend::TRTLLM_ATTN;
  const auto ran = call.run(layer_of(plain));
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_FALSE(trtllm.last().skip);
  EXPECT_FALSE(ran->receipt->skip);
}

TEST(SkipSoftmax, a_gate_without_a_timestep_is_said_once) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) lines.emplace_back(line);
  });
  {
    VendorDouble trtllm("flashinfer");
    VendorCall call(kCall);
    for (const char* gate : {"0.86", "0.86", "0"}) {
      const auto ran = call.run(layer_of(config_of(
          R"j({"threshold": 0.01, "disabled_until_timestep": )j" + std::string(gate) + "}")));
      ASSERT_TRUE(ran.has_value()) << ran.error().message;
    }
    call.options.timestep = 0.9;
    ASSERT_TRUE(
        call.run(layer_of(config_of(R"j({"threshold": 0.02, "disabled_until_timestep": 0.8})j")))
            .has_value());
  }
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0],
            "TRTLLM_ATTN: skip_softmax.disabled_until_timestep is 0.86, but calls state no "
            "timestep: no tile is skipped");
}

TEST(SkipSoftmax, a_timestep_is_normalised) {
  VendorDouble trtllm("flashinfer");
  const Attention layer =
      layer_of(config_of(R"j({"threshold": 0.01, "disabled_until_timestep": 0.86})j"));
  VendorCall call(kCall);
  for (const double wrong : {-0.001, 1.001, 999.0, std::nan(""), HUGE_VAL}) {
    SCOPED_TRACE(wrong);
    call.options.timestep = wrong;
    const auto ran = call.run(layer);
    ASSERT_FALSE(ran.has_value());
    EXPECT_EQ(ran.error().code, ErrorCode::invalid_argument);
    ASSERT_EQ(ran.error().reasons.size(), 1U);
    EXPECT_EQ(ran.error().reasons[0].field, "timestep");
    ExecutionContext context;
    context.timestep = wrong;
    const ExecutionPathResult report = layer.resolve_execution_path(call.problem(), context);
    EXPECT_EQ(report.support, SupportStatus::unsupported);
    ASSERT_EQ(report.reasons.size(), 1U);
    EXPECT_EQ(report.reasons[0].field, "timestep");
  }
  EXPECT_TRUE(trtllm.calls().empty());
}

// The threshold of packed documents is that of the longest one.
TEST(SkipSoftmax, documents_count_by_the_longest) {
  VendorDouble trtllm("flashinfer");
  const Attention layer = layer_of(config_of(R"j({"threshold": 0.01})j"));
  VendorCall call("bf16 b1 h2 s16 d128 layout=packed docs=4:4,12:12");
  const auto ran = call.run(layer);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_DOUBLE_EQ(trtllm.last().skip->factor.value(), 0.12);
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
  // Some step of the run may skip.
  EXPECT_TRUE(entry.report.lossy);
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
