// Sparse layers as a program calls them: state, schedule, strictness, block masks.
#include <algorithm>
#include <mutex>
#include <thread>

#include "fovea/fovea.hpp"
#include "fovea/log.hpp"
#include "fovea/sparse.hpp"
#include "tests/backends/block_sparse/harness.hpp"

namespace fovea {
namespace {

using block_sparse_test::bytes_of;
using block_sparse_test::TokenMask;

// Keeps what is logged while it lives.
class Lines {
 public:
  Lines() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::warning) warnings_.emplace_back(line);
    });
  }
  ~Lines() { set_log_sink({}); }
  int64_t count(std::string_view line) const {
    const std::lock_guard lock(mutex_);
    return std::count(warnings_.begin(), warnings_.end(), line);
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return warnings_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> warnings_;
};

SparseAttentionConfig guide(std::string impl) {
  SparseAttentionConfig config;
  config.sparse_impl = std::move(impl);
  config.dense_timesteps = 2;
  config.dense_layers = 1;
  config.block_size = 64;
  return config;
}

AttentionConfig required(BackendName name) {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = name;
  if (name == backend::RADIAL_ATTN) {
    spec.radial.emplace();
    spec.radial->dense_timesteps = 2;
    spec.radial->dense_layers = 1;
    spec.radial->block_size = 64;
  }
  return config;
}

Attention layer_of(const AttentionConfig& config, std::string role = "self") {
  LayerOptions options;
  options.role = std::move(role);
  auto layer = Attention::create(options, config, &serial_executor());
  EXPECT_TRUE(layer.has_value()) << (layer ? "" : layer.error().message);
  return std::move(layer).value();
}

struct Call {
  explicit Call(const std::string& text)
      : problem(block_sparse_test::problem(text)), inputs(make_random_inputs(problem).value()) {
    options.return_lse = problem.lse;
    options.is_causal = problem.causal;
  }
  Result<std::shared_ptr<const Receipt>> operator()(const Attention& layer) const {
    return layer.run(inputs.tensors(), options);
  }
  std::vector<uint8_t> out() const { return bytes_of(inputs.tensors().out); }

  Problem problem;
  RandomInputs inputs;
  CallOptions options;
};

SparseAttentionState state_of(const AttentionConfig& config, int64_t tokens, int64_t frames,
                              int64_t step = 0, int64_t index = 0) {
  auto state =
      SparseAttentionState::create(*config.default_spec, MaskMap::create(tokens, frames).value());
  EXPECT_TRUE(state.has_value()) << (state ? "" : state.error().message);
  EXPECT_TRUE(state->update(step, index));
  return std::move(state).value();
}

TEST(SparseLayer, DenseStepsAndLayersAreScheduleAndNotFallback) {
  const AttentionConfig config = required(backend::RADIAL_ATTN);
  const Attention layer = layer_of(config);
  auto state = state_of(config, 300, 3);
  Call call("f32 b1 h2 s300 d16 lse=1");
  call.options.sparse_state = &state;
  const Attention flash = layer_of(required(backend::FLASH_ATTN));
  Call dense("f32 b1 h2 s300 d16 lse=1");
  ASSERT_TRUE(dense(flash).has_value());
  for (int64_t step = 0; step < 4; ++step)
    for (int64_t index = 0; index < 3; ++index) {
      ASSERT_TRUE(state.update(step, index));
      const auto receipt = call(layer);
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      const bool scheduled = step < 2 || index < 1;
      EXPECT_EQ((*receipt)->scheduled_dense, scheduled) << step << ' ' << index;
      EXPECT_FALSE((*receipt)->fallback.has_value());
      EXPECT_EQ((*receipt)->backend, scheduled ? backend::FLASH_ATTN : backend::RADIAL_ATTN);
      EXPECT_EQ((*receipt)->density.has_value(), !scheduled);
      // Bug row 74: a dense step is the named dense backend, to the bit.
      EXPECT_EQ(call.out() == dense.out(), scheduled);
      if (!scheduled) {
        EXPECT_EQ((*receipt)->density, state.mask(300).value()->density());
      }
    }
}

TEST(SparseLayer, TheScheduleNamesItsDenseBackend) {
  AttentionConfig config = required(backend::RADIAL_ATTN);
  config.default_spec->radial->dense_backend = backend::REFERENCE;
  auto state = state_of(config, 128, 2);
  Call call("f32 b1 h1 s128 d8");
  call.options.sparse_state = &state;
  EXPECT_EQ(call(layer_of(config)).value()->backend, backend::REFERENCE);
  config.default_spec->radial->dense_backend = backend::CUDNN_ATTN;
  auto other = state_of(config, 128, 2);
  call.options.sparse_state = &other;
  const auto refused = call(layer_of(config));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("CUDNN_ATTN cannot run"), std::string::npos)
      << refused.error().message;
}

TEST(SparseLayer, WithoutAStateRequireRefuses) {
  for (const BackendName name : {backend::RADIAL_ATTN, backend::LOCAL_SPARSE_ATTN}) {
    const Call call("f32 b1 h1 s128 d8");
    const auto refused = call(layer_of(required(name)));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(refused.error().reasons.front().code, ReasonCode::sparse_state);
    EXPECT_NE(refused.error().message.find("pass sparse_state with the call"), std::string::npos);
  }
}

TEST(SparseLayer, WithoutAStateFactoriesFallBackAndSaySoOncePerRole) {
  for (const std::string impl : {"radial", "local"}) {
    const Lines lines;
    const auto config = impl == "radial" ? AttentionConfig::radial_attention(guide(impl))
                                         : AttentionConfig::local_sparse_attention(guide(impl));
    ASSERT_TRUE(config.has_value());
    for (const char* role : {"self", "other"}) {
      const Attention layer = layer_of(*config, role);
      for (const char* problem : {"f32 b1 h1 s128 d8", "f32 b1 h1 s128 d8", "f32 b1 h1 s70 d8"}) {
        const auto receipt = Call(problem)(layer);
        ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
        EXPECT_EQ((*receipt)->backend, backend::FLASH_ATTN);
        EXPECT_FALSE((*receipt)->scheduled_dense);
        ASSERT_TRUE((*receipt)->fallback.has_value());
        EXPECT_EQ((*receipt)->fallback->from, config->default_spec->backend);
        EXPECT_EQ((*receipt)->fallback->reasons.front().code, ReasonCode::sparse_state);
      }
    }
    EXPECT_EQ(lines.count("Sparse attention requires sparse_state, falling back to FLASH_ATTN"), 2);
  }
}

// Bug row 66: a backend that cannot do cross-attention was replaced in silence.
TEST(SparseLayer, BugRow66_CrossAttentionIsRefusedOrSaidOnce) {
  AttentionConfig config = required(backend::RADIAL_ATTN);
  auto state = state_of(config, 256, 2, 9, 9);
  Call call("f32 b1 h1 s256 sk=70 d8");
  call.options.sparse_state = &state;
  const auto refused = call(layer_of(config, "cross"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(
      refused.error().message.find("radial is for self-attention: seq_q 256 and seq_kv 70 differ"),
      std::string::npos)
      << refused.error().message;

  config.default_spec->strictness = Strictness::prefer;
  auto preferred = state_of(config, 256, 2, 9, 9);
  call.options.sparse_state = &preferred;
  const Lines lines;
  const Attention layer = layer_of(config, "cross");
  for (int n = 0; n < 40; ++n) {
    const auto receipt = call(layer);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->backend, backend::FLASH_ATTN);
    ASSERT_TRUE((*receipt)->fallback.has_value());
    EXPECT_EQ((*receipt)->fallback->reasons.front().code, ReasonCode::sparse);
  }
  EXPECT_EQ(lines.size(), 1U);
}

TEST(SparseLayer, DenseLayersDoNotReadTheState) {
  const AttentionConfig radial = required(backend::RADIAL_ATTN);
  auto state = state_of(radial, 128, 2, 9, 9);
  Call call("f32 b1 h1 s100 sk=70 d8");
  call.options.sparse_state = &state;
  const auto receipt = call(layer_of(required(backend::TORCH_SDPA)));
  ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
  EXPECT_EQ((*receipt)->backend, backend::TORCH_SDPA);
  EXPECT_FALSE((*receipt)->scheduled_dense);
  EXPECT_TRUE(call(layer_of({})).has_value());
}

TEST(SparseLayer, AStateOfOtherOptionsIsAnError) {
  AttentionConfig config = required(backend::RADIAL_ATTN);
  auto state = state_of(config, 128, 2, 9, 9);
  config.default_spec->radial->decay_factor = 0.5;
  Call call("f32 b1 h1 s128 d8");
  call.options.sparse_state = &state;
  const auto refused = call(layer_of(config));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("make the state from the layer's own configuration"),
            std::string::npos);
}

TEST(SparseLayer, TextAfterTheVideo) {
  const AttentionConfig config = required(backend::RADIAL_ATTN);
  auto state =
      SparseAttentionState::create(*config.default_spec, MaskMap::create(260, 2).value(), "hunyuan")
          .value();
  ASSERT_TRUE(state.update(9, 9));
  Call call("bf16 b2 h2 s330 d16 lse=1");
  call.options.sparse_state = &state;
  ASSERT_TRUE(call(layer_of(config)).has_value());
  RadialPattern pattern;
  pattern.frames = 2;
  pattern.tokens_per_frame = 130;
  pattern.text_tokens = 70;
  pattern.block_size = 64;
  pattern.model = VideoModel::hunyuan;
  const BlockMask mask = build_mask(pattern).value();
  for (const int32_t row : {4, 5}) EXPECT_EQ(mask.row(0, 0, row).size(), 6U) << "text sees all";
  const TokenMask tokens(mask, call.problem);
  AttentionTensors dense = call.inputs.tensors();
  dense.mask = tokens.view;
  const Problem question = block_sparse_test::masked(call.problem);
  const auto oracle = backends::reference::compute_oracle(question, dense, serial_executor());
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  EXPECT_TRUE(
      backends::reference::compare_to_oracle(question, dense, *oracle, DataKind::random).pass);
}

// Two resolutions and two decays in one process give what each gives alone.
// A valid length of the metadata hides keys in dense and in sparse steps, as kv_lengths do.
TEST(SparseLayer, AValidLengthHoldsInEveryStep) {
  const AttentionConfig config = required(backend::RADIAL_ATTN);
  const Attention layer = layer_of(config);
  auto state = state_of(config, 300, 3);
  for (const int64_t step : {0, 3}) {
    ASSERT_TRUE(state.update(step, 1));
    Call stated("f32 b2 h2 s300 d16 lse=1");
    AttentionMetadata metadata;
    metadata.valid_kv_length = 211;
    stated.options.sparse_state = &state;
    stated.options.metadata = &metadata;
    const auto receipt = stated(layer);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->scheduled_dense, step == 0);
    Call lengths("f32 b2 h2 s300 d16 kvlen=211,211 lse=1");
    lengths.options.sparse_state = &state;
    ASSERT_TRUE(lengths(layer).has_value());
    EXPECT_EQ(stated.out(), lengths.out());
    Call all("f32 b2 h2 s300 d16 lse=1");
    all.options.sparse_state = &state;
    ASSERT_TRUE(all(layer).has_value());
    EXPECT_NE(stated.out(), all.out());
  }
}

TEST(SparseLayer, ResolutionsAndModelsDoNotSeeEachOther) {
  const auto run = [](const Attention& layer, const AttentionConfig& config, int64_t frames) {
    auto state = state_of(config, 100 * frames, frames, 9, 9);
    Call call("f32 b1 h1 s" + std::to_string(100 * frames) + " d16");
    call.options.sparse_state = &state;
    const auto receipt = call(layer);
    EXPECT_TRUE(receipt.has_value()) << (receipt ? "" : receipt.error().message);
    return std::pair(call.out(), receipt.value()->density);
  };
  const AttentionConfig wide = required(backend::RADIAL_ATTN);
  AttentionConfig narrow = wide;
  narrow.default_spec->radial->decay_factor = 0.2;
  std::vector<std::pair<std::vector<uint8_t>, std::optional<double>>> alone;
  for (const int64_t frames : {5, 8})
    for (const AttentionConfig& config : {wide, narrow})
      alone.push_back(run(layer_of(config), config, frames));
  const Attention shared[] = {layer_of(wide), layer_of(narrow)};
  for (int round = 0; round < 3; ++round) {
    size_t at = 0;
    for (const int64_t frames : {5, 8})
      for (size_t n = 0; n < 2; ++n)
        EXPECT_EQ(run(shared[n], n == 0 ? wide : narrow, frames), alone[at++]) << round;
  }
  std::thread other([&] {
    for (int round = 0; round < 5; ++round) EXPECT_EQ(run(shared[0], wide, 8), alone[2]);
  });
  for (int round = 0; round < 5; ++round) EXPECT_EQ(run(shared[0], wide, 5), alone[0]);
  other.join();
}

// Bug row 71: what the knobs reach is reported.
TEST(SparseLayer, BugRow71_TheReceiptSaysWhatADecayReached) {
  double last = 2;
  for (const double decay : {2.0, 1.0, 0.5, 0.1}) {
    AttentionConfig config = required(backend::RADIAL_ATTN);
    config.default_spec->radial->decay_factor = decay;
    auto state = state_of(config, 2048, 8, 9, 9);
    Call call("f32 b1 h1 s2048 d8");
    call.options.sparse_state = &state;
    const auto receipt = call(layer_of(config));
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->density, state.mask(2048).value()->density());
    EXPECT_LE((*receipt)->density, last);
    last = *(*receipt)->density;
  }
}

TEST(SparseLayer, AScheduleThatIsNeverSparse) {
  AttentionConfig config = required(backend::RADIAL_ATTN);
  config.default_spec->radial->dense_timesteps = 40;
  auto state = state_of(config, 128, 2);
  const auto refused = state.begin_run(40, 30);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("would run dense in every one of 40 steps and 30 layers"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(state.begin_run(50, 30).has_value());
  config.default_spec->strictness = Strictness::prefer;
  const Lines lines;
  EXPECT_TRUE(state_of(config, 128, 2).begin_run(40, 30).has_value());
  EXPECT_EQ(lines.size(), 1U);
}

AttentionConfig masks_of_the_caller() {
  AttentionConfig config = required(backend::BLOCK_SPARSE_ATTN);
  config.default_spec->block_sparse.emplace().selection = "mask";
  return config;
}

TEST(SparseLayer, BlockMasksOfTheCaller) {
  const Attention layer = layer_of(masks_of_the_caller());
  for (const uint64_t seed : {1U, 2U}) {
    Call call("f32 b2 h4 hk=2 s200 sk=300 d16 lse=1");
    Problem random = call.problem;
    random.sparse =
        SparsePattern{"random", {{"q", "64"}, {"kv", "128"}, {"batch", "2"}, {"heads", "4"}}};
    random.seed = seed;
    call.options.block_mask = block_sparse_test::mask_of(random);
    const auto receipt = call(layer);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->density, call.options.block_mask->density());
    const TokenMask tokens(*call.options.block_mask, call.problem);
    AttentionTensors dense = call.inputs.tensors();
    dense.mask = tokens.view;
    const Problem question = block_sparse_test::masked(call.problem);
    const auto oracle = backends::reference::compute_oracle(question, dense, serial_executor());
    ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
    EXPECT_TRUE(
        backends::reference::compare_to_oracle(question, dense, *oracle, DataKind::random).pass);
  }
}

// Bug row 22: a mask of other blocks or another length than the call's.
TEST(SparseLayer, BugRow22_BlocksOfAnotherSizeAreRefused) {
  const Attention layer = layer_of(masks_of_the_caller());
  Call call("f32 b1 h1 s512 d8");
  const std::vector<uint8_t> on(16, 1);
  call.options.block_mask =
      std::make_shared<const BlockMask>(BlockMask::from_matrix({512, 512, 128, 128}, on).value());
  EXPECT_TRUE(call(layer).has_value());
  Call longer("f32 b1 h1 s600 d8");
  longer.options.block_mask = call.options.block_mask;
  EXPECT_EQ(
      longer(layer).error().message,
      "block_mask is of 512 x 512 tokens in 4 x 4 blocks of 128 x 128, the call has 600 x 600");
  std::vector<int32_t> counts(4, 1);
  std::vector<int32_t> indices(4, 0);
  Call lists("f32 b1 h1 s512 d8");
  AttentionTensors t = lists.inputs.tensors();
  t.block_counts = make_view(counts.data(), kI32, {1, 1, 4});
  t.block_indices = make_view(indices.data(), kI32, {1, 1, 4, 1});
  EXPECT_TRUE(layer.run(t, lists.options).has_value());
  lists.options.block_q = lists.options.block_kv = 64;
  const auto refused = layer.run(t, lists.options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(
      refused.error().message,
      "attention: block_counts i32[1,1,4]: it does not fit: 512 queries in blocks of 64 are 8 "
      "(accepted: i32 [1|1,1|1,8], contiguous; block_q says how many queries a block has)");
  lists.options.block_q = 256;
  EXPECT_EQ(layer.run(t, lists.options).error().message,
            "attention: block_q is 256 (accepted: 64, 128)");
}

TEST(SparseLayer, DenseBackendsRefuseABlockMask) {
  Call call("f32 b1 h1 s512 d8");
  const std::vector<uint8_t> on(16, 1);
  call.options.block_mask =
      std::make_shared<const BlockMask>(BlockMask::from_matrix({512, 512, 128, 128}, on).value());
  const auto refused = call(layer_of(required(backend::FLASH_ATTN)));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().reasons.front().code, ReasonCode::sparse);
  EXPECT_TRUE(call(layer_of(required(backend::REFERENCE))).has_value());
}

TEST(SparseLayer, ChosenBlocksFollowTheirSchedule) {
  AttentionConfig config = required(backend::SPARGE_ATTN);
  BlockSparseOptions& options = config.default_spec->block_sparse.emplace();
  options.sparsity = 0.7;
  options.block_size = 64;
  options.start_step = 1;
  options.end_step = 1;
  options.skip_layers = {2};
  auto state = state_of(config, 1, 1);
  ASSERT_TRUE(state.begin_run(4, 4).has_value());
  const Attention layer = layer_of(config);
  Call call("f32 b1 h1 s1500 d8");
  call.options.sparse_state = &state;
  for (int64_t step = 0; step < 4; ++step)
    for (int64_t index = 0; index < 4; ++index) {
      ASSERT_TRUE(state.update(step, index));
      const auto receipt = call(layer);
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      const bool dense = step == 0 || step == 3 || index == 2;
      EXPECT_EQ((*receipt)->scheduled_dense, dense) << step << ' ' << index;
      if (!dense) {
        EXPECT_EQ((*receipt)->backend, backend::SPARGE_ATTN);
        EXPECT_EQ((*receipt)->density, 8.0 / 24);
      }
    }
}

}  // namespace
}  // namespace fovea
