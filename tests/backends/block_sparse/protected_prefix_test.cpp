// Protected keys: what the metadata says is kept by blocks chosen from the data and demanded of
// masks that the caller made.
#include <algorithm>
#include <cmath>
#include <set>

#include "fovea/fovea.hpp"
#include "fovea/sparse.hpp"
#include "tests/backends/block_sparse/harness.hpp"

namespace fovea {
namespace {

using block_sparse_test::bytes_of;
using block_sparse_test::cpu_context;
using Blocks = std::set<int64_t>;

constexpr int64_t kBlock = 64;
constexpr int64_t kColumns = 24;

AttentionConfig config_of(BackendName name, std::string selection, int64_t protected_prefix) {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = name;
  BlockSparseOptions& options = spec.block_sparse.emplace();
  options.selection = std::move(selection);
  options.sparsity = 0.7;
  options.block_size = kBlock;
  options.protected_prefix = protected_prefix;
  return config;
}

Attention layer_of(const AttentionConfig& config) {
  auto layer = Attention::create({}, config, &serial_executor());
  EXPECT_TRUE(layer.has_value()) << (layer ? "" : layer.error().message);
  return std::move(layer).value();
}

Blocks blocks(int64_t first, int64_t last, Blocks more = {}) {
  for (int64_t n = first; n <= last; ++n) more.insert(n);
  return more;
}

// Keys whose score grows with their block, so that the last blocks are chosen, and values that are
// 1 in the dimension of their block: an output above 0 is a block that was seen.
struct RisingKeys {
  explicit RisingKeys(const std::string& text)
      : problem(block_sparse_test::problem(text)), inputs(make_random_inputs(problem).value()) {
    AttentionTensors t = inputs.tensors();
    fill(t.q, [](int64_t, int64_t d) { return d == 0 ? 1.0F : 0.0F; });
    fill(t.k, [](int64_t j, int64_t d) { return d == 0 ? static_cast<float>(j / kBlock) : 0.0F; });
    fill(t.v, [](int64_t j, int64_t d) { return d == j / kBlock ? 1.0F : 0.0F; });
    options.scale = 0.01;
  }

  template <class F>
  static void fill(const TensorView& view, F value) {
    auto* data = static_cast<float*>(view.data);
    for (int64_t b = 0; b < view.shape[0]; ++b)
      for (int64_t s = 0; s < view.shape[1]; ++s)
        for (int64_t h = 0; h < view.shape[2]; ++h)
          for (int64_t d = 0; d < view.shape[3]; ++d)
            data[b * view.stride[0] + s * view.stride[1] + h * view.stride[2] + d] = value(s, d);
  }

  // The blocks that query `row` of head `head` sees.
  Blocks seen(int64_t b, int64_t row, int64_t head) const {
    const TensorView& out = inputs.tensors().out;
    const float* at = static_cast<const float*>(out.data) + b * out.stride[0] +
                      row * out.stride[1] + head * out.stride[2];
    Blocks found;
    for (int64_t d = 0; d < kColumns; ++d) {
      EXPECT_TRUE(at[d] >= 0 && at[d] <= 1) << at[d];
      if (at[d] > 0) found.insert(d);
    }
    return found;
  }

  void expect_seen(const Blocks& wanted) const {
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t h = 0; h < problem.heads_q; ++h)
        for (int64_t row = 0; row < problem.seq_q; row += 37)
          EXPECT_EQ(seen(b, row, h), wanted) << b << ' ' << row << ' ' << h;
  }

  Problem problem;
  RandomInputs inputs;
  CallOptions options;
};

struct Case {
  int64_t option;
  int64_t stated;
  Blocks wanted;
};

// 8 of 24 blocks by score; of what protection leaves, 8 again.
const Case kCases[] = {{0, 0, blocks(16, 23)},
                       {0, 1, blocks(16, 23, {0})},
                       {0, 64, blocks(16, 23, {0})},
                       {0, 65, blocks(16, 23, {0, 1})},
                       {65, 130, blocks(16, 23, {0, 1, 2})},
                       {130, 1, blocks(16, 23, {0, 1, 2})},
                       {130, 0, blocks(16, 23, {0, 1, 2})},
                       {0, 1536, blocks(0, 23)}};

TEST(ProtectedPrefix, ChosenBlocksKeepTheLargerOfOptionAndMetadata) {
  for (const BackendName name : {backend::SPARGE_ATTN, backend::BLOCK_SPARSE_ATTN})
    for (const Case& c : kCases) {
      SCOPED_TRACE(testing::Message() << fovea::name(name) << ' ' << c.option << ' ' << c.stated);
      const Attention layer = layer_of(config_of(name, "block_topk", c.option));
      RisingKeys call("f32 b2 h2 hk=1 s100 sk=1536 d24 lse=1");
      AttentionMetadata metadata;
      metadata.protected_kv_prefix = c.stated;
      call.options.metadata = &metadata;
      call.options.return_lse = true;
      const auto receipt = layer.run(call.inputs.tensors(), call.options);
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      EXPECT_EQ((*receipt)->backend, name);
      const double density = static_cast<double>(c.wanted.size()) / kColumns;
      EXPECT_EQ((*receipt)->density, density);
      call.expect_seen(c.wanted);
      EXPECT_EQ(layer.resolve_execution_path(call.problem, {}, metadata).density, density);
    }
}

// One layer, one problem: the prefix belongs to the plan's key.
TEST(ProtectedPrefix, CallsOfOneLayerDoNotSeeEachOther) {
  const Attention layer = layer_of(config_of(backend::SPARGE_ATTN, "block_topk", 0));
  RisingKeys call("f32 b1 h1 s100 sk=1536 d24");
  AttentionMetadata metadata;
  call.options.metadata = &metadata;
  for (const int64_t prefix : {0, 65, 0, 130, 65}) {
    metadata.protected_kv_prefix = prefix;
    ASSERT_TRUE(layer.run(call.inputs.tensors(), call.options).has_value());
    call.expect_seen(prefix == 0 ? blocks(16, 23) : blocks(16, 23, blocks(0, prefix / 64)));
  }
}

TEST(ProtectedPrefix, LengthsEndBehindIt) {
  const Attention layer = layer_of(config_of(backend::SPARGE_ATTN, "block_topk", 0));
  RisingKeys call("f32 b1 h1 s100 sk=1536 d24");
  AttentionMetadata metadata;
  metadata.protected_kv_prefix = 65;
  metadata.valid_kv_length = 1216;  // 19 blocks
  call.options.metadata = &metadata;
  ASSERT_TRUE(layer.run(call.inputs.tensors(), call.options).has_value());
  call.expect_seen(blocks(11, 18, {0, 1}));
  metadata.protected_kv_prefix = 1217;
  const auto refused = layer.run(call.inputs.tensors(), call.options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().reasons.at(0).field, "protected_kv_prefix");
}

TEST(ProtectedPrefix, EqualsTheOracleOnRandomInputs) {
  for (const char* text :
       {"f32 b2 h4 hk=2 s300 sk=1400 d16 lse=1", "bf16 b1 h2 s200 sk=2000 d64 lse=1",
        "f16 b2 h1 s130 sk=2400 d32 lse=1 kvlen=1500,64"}) {
    SCOPED_TRACE(text);
    const Problem p = block_sparse_test::problem(text);
    const auto inputs = make_random_inputs(p);
    ASSERT_TRUE(inputs.has_value());
    const Attention layer = layer_of(config_of(backend::SPARGE_ATTN, "block_topk", 0));
    AttentionMetadata metadata;
    metadata.protected_kv_prefix = 200;
    CallOptions options;
    options.return_lse = true;
    options.metadata = &metadata;
    const AttentionTensors t = inputs->tensors();
    ASSERT_TRUE(layer.run(t, options).has_value());
    const auto mask = select_blocks({0.7, kBlock, 200}, t, p, serial_executor());
    ASSERT_TRUE(mask.has_value());
    const auto oracle = backends::reference::compute_oracle(p, t, serial_executor(), &*mask);
    ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
    EXPECT_TRUE(backends::reference::compare_to_oracle(p, t, *oracle, DataKind::random).pass);
  }
}

TEST(ProtectedPrefix, RecordedCallsKeepIt) {
  const Attention layer = layer_of(config_of(backend::SPARGE_ATTN, "block_topk", 0));
  RisingKeys call("f32 b1 h1 s100 sk=1536 d24 scale=0.01");
  AttentionMetadata metadata;
  metadata.protected_kv_prefix = 65;
  const auto recorded = layer.record(call.problem, metadata);
  ASSERT_TRUE(recorded.has_value()) << recorded.error().message;
  ASSERT_TRUE(recorded->run(call.inputs.tensors(), {}).has_value());
  call.expect_seen(blocks(16, 23, {0, 1}));
}

// Every block but those named, in one row of two.
std::shared_ptr<const BlockMask> mask_without(int64_t row, const Blocks& off) {
  const BlockMaskShape shape{100, 1536, 64, 64, 1, 1};
  std::vector<uint8_t> matrix(static_cast<size_t>(shape.rows() * shape.columns()), 1);
  for (const int64_t block : off) matrix[static_cast<size_t>(row * kColumns + block)] = 0;
  return std::make_shared<const BlockMask>(BlockMask::from_matrix(shape, matrix).value());
}

TEST(ProtectedPrefix, MasksOfTheCallerMustHoldIt) {
  const Attention layer = layer_of(config_of(backend::BLOCK_SPARSE_ATTN, "mask", 0));
  RisingKeys call("f32 b1 h1 s100 sk=1536 d24");
  AttentionMetadata metadata;
  call.options.metadata = &metadata;
  const auto message = [&](std::shared_ptr<const BlockMask> mask, int64_t prefix) {
    call.options.block_mask = std::move(mask);
    metadata.protected_kv_prefix = prefix;
    const auto before = bytes_of(call.inputs.tensors().out);
    const auto done = layer.run(call.inputs.tensors(), call.options);
    if (done) return std::string("ran");
    EXPECT_EQ(before, bytes_of(call.inputs.tensors().out));
    return done.error().message;
  };
  EXPECT_EQ(message(mask_without(0, {2, 9}), 128), "ran");
  EXPECT_EQ(message(mask_without(1, {1}), 64), "ran");
  EXPECT_EQ(message(mask_without(1, {1}), 65),
            "attention: block_indices leaves out a block of the 65 protected keys at row 1 "
            "(accepted: 0..1 in every row)");
  EXPECT_EQ(message(mask_without(0, {0}), 1),
            "attention: block_indices leaves out a block of the 1 protected keys at row 0 "
            "(accepted: 0..0 in every row)");
  EXPECT_EQ(message(mask_without(1, blocks(0, 23)), 1),
            "attention: block_indices leaves out a block of the 1 protected keys at row 1 "
            "(accepted: 0..0 in every row)");
  EXPECT_EQ(message(mask_without(1, blocks(0, 23)), 0), "ran");
}

// A pattern is known before the call, so the refusal comes from resolve.
TEST(ProtectedPrefix, PatternsMustHoldIt) {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = backend::RADIAL_ATTN;
  RadialOptions& options = spec.radial.emplace();
  options.dense_timesteps = 0;
  options.block_size = kBlock;
  options.decay_factor = 0.2;
  const Attention layer = layer_of(config);
  const auto state = SparseAttentionState::create(spec, MaskMap::create(2048, 16).value());
  ASSERT_TRUE(state.has_value());
  const Problem p = block_sparse_test::problem("f32 b1 h1 s2048 d8");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionMetadata metadata;
  CallOptions call;
  call.sparse_state = &*state;
  call.metadata = &metadata;
  metadata.protected_kv_prefix = 128;  // the first frame, which all see
  const auto ran = layer.run(inputs->tensors(), call);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  metadata.protected_kv_prefix = 1500;
  const auto refused = layer.run(inputs->tensors(), call);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  const Reason& reason = refused.error().reasons.at(0);
  EXPECT_EQ(reason.code, ReasonCode::sparse);
  EXPECT_EQ(reason.field, "protected_kv_prefix");
  EXPECT_EQ(reason.got, "1500");
  EXPECT_EQ(reason.accepted.find("a pattern that keeps the first 24 blocks of keys in every row"),
            0U)
      << reason.accepted;
  EXPECT_FALSE(reason.remedy.empty());
}

TEST(ProtectedPrefix, DenseAttentionSeesItAnyway) {
  const Attention layer = layer_of({});
  RisingKeys call("f32 b1 h1 s100 sk=1536 d24");
  ASSERT_TRUE(layer.run(call.inputs.tensors(), call.options).has_value());
  const auto plain = bytes_of(call.inputs.tensors().out);
  AttentionMetadata metadata;
  metadata.protected_kv_prefix = 200;
  call.options.metadata = &metadata;
  ASSERT_TRUE(layer.run(call.inputs.tensors(), call.options).has_value());
  EXPECT_EQ(plain, bytes_of(call.inputs.tensors().out));
}

}  // namespace
}  // namespace fovea
