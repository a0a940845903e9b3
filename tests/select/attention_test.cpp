#include "fovea/attention.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "fovea/sparse.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::Registered;

struct Inputs {
  explicit Inputs(int64_t heads = 2, int64_t head_dim = 4)
      : data(static_cast<size_t>(3 * heads * head_dim), 1.0f) {
    tensors.q = tensors.k = tensors.v = make_view(data.data(), kF32, {1, 3, heads, head_dim});
  }
  std::vector<float> data;
  AttentionTensors tensors;
};

AttentionConfig config_for(BackendName backend) {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend;
  return config;
}

TEST(AttentionLayer, RunsTheConfiguredBackendAndReturnsItsReceipt) {
  const Registered fake(backend::TORCH_SDPA, std::make_shared<FakeBackend>(
                                                 "test:x", 512, SupportStatus::supported, 7.0f));
  auto layer = Attention::create({}, config_for(backend::TORCH_SDPA));
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  for (int call = 0; call < 3; ++call) {
    auto result = (*layer)(inputs.tensors);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->receipt->backend, backend::TORCH_SDPA);
    EXPECT_EQ(result->receipt->path, "test:x");
    EXPECT_FALSE(result->receipt->fallback.has_value());
    EXPECT_EQ(static_cast<const float*>(result->out.view().data)[23], 7.0f);
  }
  EXPECT_EQ(fake->plans, 1) << "plans are cached";
}

TEST(AttentionLayer, PreferPutsTheFallbackIntoTheReceipt) {
  const Registered fake(backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:x", 2));
  AttentionConfig config = config_for(backend::TORCH_SDPA);
  config.default_spec->strictness = Strictness::prefer;
  auto layer = Attention::create({}, config);
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  auto result = (*layer)(inputs.tensors);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->receipt->backend, backend::FLASH_ATTN);
  ASSERT_TRUE(result->receipt->fallback.has_value());
  EXPECT_EQ(result->receipt->fallback->from, backend::TORCH_SDPA);
}

TEST(AttentionLayer, APlanOfACallHasItsReceiptAndProblem) {
  const Registered fake(backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:x", 2));
  AttentionConfig config = config_for(backend::TORCH_SDPA);
  config.default_spec->strictness = Strictness::prefer;
  config.default_spec->scale = 0.5;
  auto layer = Attention::create({}, config);
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  const auto plan = layer->plan(inputs.tensors, {});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->receipt->backend, backend::FLASH_ATTN);
  ASSERT_TRUE(plan->receipt->fallback.has_value());
  EXPECT_EQ(plan->problem.scale, 0.5);
  EXPECT_FALSE(plan->without_lists);

  CallOptions options;
  const uint8_t on = 1;
  options.block_mask =
      std::make_shared<const BlockMask>(BlockMask::from_matrix({3, 3}, {&on, 1}).value());
  const auto refused = layer->plan(inputs.tensors, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("block_counts"), std::string::npos);
}

TEST(AttentionLayer, PlansAndReportsFollowTheSparseState) {
  constexpr int64_t kTokens = 256;
  std::vector<float> data(kTokens * 8, 0.5f);
  AttentionTensors tensors;
  tensors.q = tensors.k = tensors.v = make_view(data.data(), kF32, {1, kTokens, 1, 8});
  AttentionConfig config = config_for(backend::RADIAL_ATTN);
  config.default_spec->radial.emplace().block_size = 64;
  auto layer = Attention::create({}, config);
  ASSERT_TRUE(layer.has_value());
  auto state =
      SparseAttentionState::create(*config.default_spec, MaskMap::create(kTokens, 4).value())
          .value();
  CallOptions options;
  options.sparse_state = &state;
  for (const bool dense : {true, false}) {
    ASSERT_TRUE(state.update(dense ? 0 : 40));
    const BackendName expected = dense ? state.dense_backend() : backend::RADIAL_ATTN;
    const auto plan = layer->plan(tensors, options);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    EXPECT_EQ(plan->receipt->backend, expected);
    EXPECT_EQ(plan->receipt->scheduled_dense, dense);
    EXPECT_EQ(plan->without_lists, dense);
    const auto report = layer->resolve_execution_path(tensors, options, {});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->backend, expected);
    EXPECT_EQ(report->support, SupportStatus::supported);
  }
  const auto elsewhere = layer->resolve_execution_path(*parse_problem("f32 b1 h1 s4 d8"), {}, {},
                                                       Device{DeviceType::cuda, 99});
  EXPECT_EQ(elsewhere.support, SupportStatus::unsupported);
  EXPECT_EQ(elsewhere.path, "device");
  ASSERT_FALSE(elsewhere.reasons.empty());
}

TEST(AttentionLayer, ARefusalRunsNothing) {
  const Registered fake(backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:x", 2));
  auto layer = Attention::create({}, config_for(backend::TORCH_SDPA));
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  auto result = (*layer)(inputs.tensors);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_EQ(fake->plans, 0);
}

TEST(AttentionLayer, TheDeclaredShapeIsChecked) {
  LayerOptions options;
  options.role = "cross";
  options.heads_q = 8;
  auto layer = Attention::create(options, {});
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  auto result = (*layer)(inputs.tensors);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message,
            "layer 'cross' was built with heads_q 8 but the call has heads_q 2; build a layer for "
            "these tensors or "
            "pass 0 to accept any");
}

TEST(AttentionLayer, AMaskFreeLayerRefusesAMask) {
  LayerOptions options;
  options.mask_free = true;
  auto layer = Attention::create(options, {});
  ASSERT_TRUE(layer.has_value());
  Inputs inputs;
  std::vector<uint8_t> mask(3, 1);
  inputs.tensors.mask = make_view(mask.data(), kBool, {1, 3});
  auto result = (*layer)(inputs.tensors);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("mask_free"), std::string::npos);
}

TEST(AttentionLayer, AnArgumentBeatsTheConfiguration) {
  AttentionConfig config = config_for(backend::REFERENCE);
  config.default_spec->is_causal = true;
  auto layer = Attention::create({}, config);
  ASSERT_TRUE(layer.has_value());
  std::vector<float> zeros(2, 0.0f), values{1.0f, 3.0f};
  AttentionTensors tensors;
  tensors.q = tensors.k = make_view(zeros.data(), kF32, {1, 2, 1, 1});
  tensors.v = make_view(values.data(), kF32, {1, 2, 1, 1});
  auto causal = (*layer)(tensors);
  ASSERT_TRUE(causal.has_value()) << causal.error().message;
  EXPECT_FLOAT_EQ(static_cast<const float*>(causal->out.view().data)[0], 1.0f);
  CallOptions full;
  full.is_causal = false;
  auto dense = (*layer)(tensors, full);
  ASSERT_TRUE(dense.has_value()) << dense.error().message;
  EXPECT_FLOAT_EQ(static_cast<const float*>(dense->out.view().data)[0], 2.0f);
}

TEST(AttentionLayer, EightThreadsWithTheirOwnConfigurations) {
  const Registered one(backend::TORCH_SDPA, std::make_shared<FakeBackend>(
                                                "test:one", 512, SupportStatus::supported, 1.0f));
  const Registered two(backend::SAGE_ATTN, std::make_shared<FakeBackend>(
                                               "test:two", 512, SupportStatus::supported, 2.0f));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      const BackendName backend = t % 2 == 0 ? backend::TORCH_SDPA : backend::REFERENCE;
      auto layer = Attention::create({}, config_for(backend), &serial_executor());
      ASSERT_TRUE(layer.has_value());
      Inputs inputs;
      for (int call = 0; call < 200; ++call) {
        auto result = (*layer)(inputs.tensors);
        ASSERT_TRUE(result.has_value());
        ASSERT_EQ(result->receipt->backend, backend);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fovea
