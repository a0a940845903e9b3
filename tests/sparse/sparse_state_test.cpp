#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "fovea/sparse.hpp"

namespace fovea {
namespace {

MaskMap small_map() { return MaskMap::create(1024, 8).value(); }

SparseAttentionConfig config_of(std::string impl) {
  SparseAttentionConfig config;
  config.sparse_impl = std::move(impl);
  config.dense_timesteps = 12;
  config.dense_layers = 1;
  return config;
}

TEST(SparseAttentionState, IsDenseInTheFirstStepsAndLayers) {
  auto state = SparseAttentionState::create(config_of("radial"), small_map()).value();
  int64_t sparse = 0;
  for (int64_t step = 0; step < 40; ++step) {
    for (int64_t layer = 0; layer < 30; ++layer) {
      ASSERT_TRUE(state.update(step, layer));
      EXPECT_EQ(state.should_use_dense(), step < 12 || layer < 1) << step << ", " << layer;
      EXPECT_EQ(state.sparsity_type(), state.should_use_dense() ? "dense" : "radial");
      sparse += !state.should_use_dense();
    }
  }
  EXPECT_EQ(sparse, 28 * 29);
  ASSERT_TRUE(state.update(0, 5));
  EXPECT_EQ(state.dense_cause(), DenseCause::first_steps);
  ASSERT_TRUE(state.update(12, 0));
  EXPECT_EQ(state.dense_cause(), DenseCause::first_layers);
}

TEST(SparseAttentionState, AFixedDecisionHoldsForEveryStepAndLayer) {
  auto state = SparseAttentionState::create(config_of("radial"), small_map()).value();
  for (const DenseCause cause : {DenseCause::none, DenseCause::last_steps}) {
    state.fix(cause);
    for (const int64_t step : {0, 20}) {
      ASSERT_TRUE(state.update(step, step));
      EXPECT_EQ(state.dense_cause(), cause);
    }
  }
  EXPECT_EQ(state.sparsity_type(), "dense");
}

TEST(SparseAttentionState, UpdateKeepsWhatIsNotGiven) {
  auto state = SparseAttentionState::create(config_of("local"), small_map()).value();
  ASSERT_TRUE(state.update(13));
  ASSERT_TRUE(state.update({}, 4));
  EXPECT_EQ(state.numeral_timestep(), 13);
  EXPECT_EQ(state.layer_idx(), 4);
  EXPECT_EQ(state.sparsity_type(), "local");
  EXPECT_EQ(state.update(14, -1).error().message,
            "layer_idx -1 is out of range (accepted: 0 to 2147483647)");
  EXPECT_EQ(state.update(-2).error().message,
            "numeral_timestep -2 is out of range (accepted: 0 to 2147483647)");
  EXPECT_EQ(state.numeral_timestep(), 13);
}

TEST(SparseAttentionState, MasksFollowConfigurationAndModel) {
  const MaskMap map = small_map();
  SparseAttentionConfig config = config_of("radial");
  config.block_size = 64;
  config.decay_factor = 0.5;
  const auto wan = SparseAttentionState::create(config, map).value();
  const auto hunyuan = SparseAttentionState::create(config, map, "hunyuan").value();
  RadialPattern pattern;
  pattern.frames = 8;
  pattern.tokens_per_frame = 128;
  pattern.block_size = 64;
  pattern.decay_factor = 0.5;
  EXPECT_EQ(*wan.mask(1024).value(), build_mask(pattern).value());
  pattern.model = VideoModel::hunyuan;
  pattern.text_tokens = 30;
  EXPECT_EQ(*hunyuan.mask(1054).value(), build_mask(pattern).value());
  EXPECT_EQ(map.size(), 2U);
  EXPECT_EQ(wan.mask_map().size(), 2U);

  config.sparse_impl = "local";
  config.local_window_size = 1;
  const auto local = SparseAttentionState::create(config, map).value();
  EXPECT_EQ(local.mask(1024).value()->density(), 0.5);
  EXPECT_FALSE(local.mask(1023));
}

TEST(SparseAttentionState, TakesASpecWithItsDenseBackend) {
  AttentionSpec spec;
  spec.backend = backend::RADIAL_ATTN;
  spec.radial.emplace().dense_timesteps = 0;
  spec.radial->dense_backend = backend::TORCH_SDPA;
  const auto state = SparseAttentionState::create(spec, small_map()).value();
  EXPECT_FALSE(state.should_use_dense());
  EXPECT_EQ(state.dense_backend(), backend::TORCH_SDPA);
  EXPECT_EQ(state.spec(), spec);
  spec.radial.reset();
  EXPECT_TRUE(SparseAttentionState::create(spec, small_map()).value().should_use_dense());
  spec.backend = backend::FLASH_ATTN;
  EXPECT_EQ(SparseAttentionState::create(spec, small_map()).error().message,
            "FLASH_ATTN keeps no sparse state (accepted: RADIAL_ATTN, LOCAL_SPARSE_ATTN, "
            "BLOCK_SPARSE_ATTN, SPARGE_ATTN)");
}

TEST(SparseAttentionState, RefusesWrongConfigurations) {
  const auto refusal = [](const SparseAttentionConfig& config, std::string_view model = "wan") {
    const auto state = SparseAttentionState::create(config, small_map(), model);
    return state ? "made" : state.error().message;
  };
  EXPECT_EQ(refusal(config_of("radial")), "made");
  EXPECT_EQ(refusal(config_of("none")),
            "sparse_config has no sparse_impl, so there is nothing to keep a state for (accepted: "
            "radial, local)");
  EXPECT_EQ(refusal({}), refusal(config_of("none")));
  EXPECT_NE(refusal(config_of("radail")).find("sparse_impl"), std::string::npos);
  EXPECT_EQ(refusal(config_of("radial"), "mochi"),
            "model_type 'mochi' is not a video model (accepted: wan, hunyuan)");
  SparseAttentionConfig config = config_of("radial");
  config.decay_factor = 0;
  EXPECT_NE(refusal(config).find("decay_factor"), std::string::npos);
}

TEST(SparseAttentionState, RequestsDoNotSeeEachOther) {
  const MaskMap map = small_map();
  auto first = SparseAttentionState::create(config_of("radial"), map).value();
  auto second = SparseAttentionState::create(config_of("radial"), map).value();
  std::thread one([&] {
    for (int64_t step = 0; step < 40; ++step) ASSERT_TRUE(first.update(step, 3));
  });
  std::thread two([&] {
    for (int n = 0; n < 100; ++n) EXPECT_EQ(second.numeral_timestep(), 0);
    EXPECT_TRUE(second.should_use_dense());
    EXPECT_TRUE(second.mask(1024));
  });
  for (int n = 0; n < 100; ++n) EXPECT_TRUE(first.mask(1024));
  one.join();
  two.join();
  EXPECT_FALSE(first.should_use_dense());
  EXPECT_EQ(first.mask(1024).value(), second.mask(1024).value());
}

}  // namespace
}  // namespace fovea
