#include "fovea/joint.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "src/backends/reference/agreement.hpp"
#include "src/core/random_inputs.hpp"

namespace fovea {
namespace {

Problem problem_of(const std::string& text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << text << (parsed ? "" : parsed.error().message);
  return parsed.value_or(Problem{});
}

Attention layer_of(BackendName backend = backend::FLASH_ATTN) {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend;
  return Attention::create({}, config, &serial_executor()).value();
}

// Tokens first .. first + count - 1 along an axis, read in place.
TensorView slice(TensorView view, size_t axis, int64_t first, int64_t count) {
  view.data = static_cast<char*>(view.data) +
              first * view.stride[axis] * static_cast<int64_t>(size_bytes(view.dtype));
  view.shape[axis] = count;
  return view;
}

std::vector<uint8_t> bytes_of(const TensorView& view) {
  std::vector<uint8_t> out;
  if (!view.present()) return out;
  const auto size = static_cast<int64_t>(size_bytes(view.dtype));
  for (int64_t n = 0; n < view.numel(); ++n) {
    int64_t rest = n, offset = 0;
    for (int32_t axis = view.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      offset += rest % view.shape[a] * view.stride[a];
      rest /= view.shape[a];
    }
    const auto* at = static_cast<const uint8_t*>(view.data) + offset * size;
    out.insert(out.end(), at, at + size);
  }
  return out;
}

// The streams of one sequence: `count` tokens of the call and the rest joint, as views of it.
struct Streams {
  Streams(const AttentionTensors& all, size_t seq, int64_t count, JointStrategy strategy) {
    const int64_t rest = all.q.shape[seq] - count;
    const bool front = strategy == JointStrategy::front;
    const auto split = [&](const TensorView& from, TensorView& mine, TensorView& other) {
      mine = slice(from, seq, front ? rest : 0, count);
      other = slice(from, seq, front ? 0 : count, rest);
    };
    split(all.q, own.q, joint.q);
    split(all.k, own.k, joint.k);
    split(all.v, own.v, joint.v);
    joint.strategy = strategy;
  }
  AttentionTensors own;
  JointTensors joint;
};

TEST(Joint, IsTheCallOnTheJoinedTensorsToTheBit) {
  for (const char* text : {"f32 b2 h4 hk=2 s37 d16 lse=1", "bf16 b1 h2 s50 d24 dv=8 lse=1",
                           "f16 b2 h2 s41 d8 layout=bhsd lse=1", "f32 b2 h2 s33 d8 mask=causal"})
    for (const JointStrategy strategy : {JointStrategy::front, JointStrategy::rear})
      for (const int64_t count : {30, 1, 0}) {
        SCOPED_TRACE(testing::Message() << text << ' ' << name(strategy) << ' ' << count);
        const Problem p = problem_of(text);
        const auto inputs = make_random_inputs(p);
        ASSERT_TRUE(inputs.has_value());
        AttentionTensors all = inputs->tensors();
        all.out = all.lse = {};
        CallOptions options;
        options.input_layout = p.layout;
        options.return_lse = p.lse;
        options.is_causal = p.causal;
        const Attention layer = layer_of();
        const auto expected = layer(all, options);
        ASSERT_TRUE(expected.has_value()) << expected.error().message;
        const size_t seq = p.layout == Layout::bhsd ? 2 : 1;
        const Streams streams(all, seq, count, strategy);
        const auto got = attend_jointly(layer, streams.own, streams.joint, options);
        ASSERT_TRUE(got.has_value()) << got.error().message;
        EXPECT_EQ(to_string(got->out.view()), to_string(expected->out.view()));
        EXPECT_EQ(bytes_of(got->out.view()), bytes_of(expected->out.view()));
        EXPECT_EQ(bytes_of(got->lse.view()), bytes_of(expected->lse.view()));
        const bool front = strategy == JointStrategy::front;
        const int64_t rest = p.seq_q - count;
        EXPECT_EQ(bytes_of(got->tokens),
                  bytes_of(slice(expected->out.view(), seq, front ? rest : 0, count)));
        EXPECT_EQ(bytes_of(got->joint),
                  bytes_of(slice(expected->out.view(), seq, front ? 0 : count, rest)));
        EXPECT_EQ(got->receipt->copies, (std::vector<std::string>{"q", "k", "v"}));
        EXPECT_EQ(got->receipt->backend, expected->receipt->backend);
      }
}

TEST(Joint, AgreesWithTheOracle) {
  const Problem p = problem_of("bf16 b2 h4 hk=2 s70 d32 lse=1");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionTensors all = inputs->tensors();
  const auto oracle = backends::reference::compute_oracle(p, all, serial_executor());
  ASSERT_TRUE(oracle.has_value());
  const Streams streams(all, 1, 60, JointStrategy::front);
  CallOptions options;
  options.return_lse = true;
  const auto got = attend_jointly(layer_of(), streams.own, streams.joint, options);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  all.out = got->out.view();
  all.lse = got->lse.view();
  EXPECT_TRUE(backends::reference::compare_to_oracle(p, all, *oracle, DataKind::random).pass);
}

// q = k = 0 and v = place in memory: causal rows give the mean of what stands up to them.
TEST(Joint, TheStrategyOrdersTheTokens) {
  constexpr int64_t kOwn = 3, kJoint = 2;
  std::vector<float> zero(16, 0.0F), own = {10, 20, 30}, joint = {1, 2};
  AttentionTensors t;
  t.q = t.k = make_view(zero.data(), kF32, {1, kOwn, 1, 2});
  t.v = make_view(own.data(), kF32, {1, kOwn, 1, 1});
  JointTensors j;
  j.q = j.k = make_view(zero.data(), kF32, {1, kJoint, 1, 2});
  j.v = make_view(joint.data(), kF32, {1, kJoint, 1, 1});
  CallOptions options;
  options.is_causal = true;
  const auto means = [&](std::vector<float> order) {
    std::vector<float> out;
    for (size_t n = 1; n <= order.size(); ++n)
      out.push_back(
          std::accumulate(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), 0.0F) /
          static_cast<float>(n));
    return out;
  };
  for (const BackendName backend : {backend::FLASH_ATTN, backend::TORCH_SDPA, backend::REFERENCE}) {
    for (const JointStrategy strategy : {JointStrategy::front, JointStrategy::rear}) {
      j.strategy = strategy;
      const auto got = attend_jointly(layer_of(backend), t, j, options);
      ASSERT_TRUE(got.has_value()) << got.error().message;
      const std::vector<float> wanted =
          strategy == JointStrategy::front ? means({1, 2, 10, 20, 30}) : means({10, 20, 30, 1, 2});
      const auto* out = static_cast<const float*>(got->out.view().data);
      for (size_t n = 0; n < wanted.size(); ++n) EXPECT_NEAR(out[n], wanted[n], 1e-5) << n;
      const int64_t first = strategy == JointStrategy::front ? 2 : 0;
      EXPECT_EQ(got->tokens.data, out + first);
      EXPECT_EQ(got->joint.data, out + (first == 2 ? 0 : 3));
    }
  }
}

// Masks and metadata are about the joined keys.
TEST(Joint, MasksAndMetadataCoverTheJoinedKeys) {
  const Problem p = problem_of("f32 b2 h2 s20 d8");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionTensors all = inputs->tensors();
  all.out = {};
  std::vector<uint8_t> keep(2 * 20);
  for (size_t n = 0; n < keep.size(); ++n) keep[n] = n % 3 != 0;
  const Streams streams(all, 1, 14, JointStrategy::front);
  AttentionTensors own = streams.own;
  all.mask = own.mask = make_view(keep.data(), kBool, {2, 20});
  const Attention layer = layer_of();
  const auto expected = layer(all);
  const auto got = attend_jointly(layer, own, streams.joint);
  ASSERT_TRUE(expected.has_value() && got.has_value());
  EXPECT_EQ(bytes_of(got->out.view()), bytes_of(expected->out.view()));

  own.mask = make_view(keep.data(), kBool, {2, 14});
  EXPECT_FALSE(attend_jointly(layer, own, streams.joint).has_value());

  own.mask = all.mask = {};
  AttentionMetadata metadata;
  metadata.valid_kv_length = 17;
  CallOptions options;
  options.metadata = &metadata;
  const auto cut = attend_jointly(layer, own, streams.joint, options);
  ASSERT_TRUE(cut.has_value()) << cut.error().message;
  EXPECT_EQ(bytes_of(cut->out.view()), bytes_of(layer(all, options)->out.view()));
}

// A mask of each stream is the mask of the joined keys; a stream without one is seen whole.
TEST(Joint, KeyPaddingOfBothStreamsIsJoined) {
  const Problem p = problem_of("f32 b2 h2 s20 d8");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionTensors all = inputs->tensors();
  all.out = {};
  const Attention layer = layer_of();
  const auto bytes = [](DType dtype, const std::vector<bool>& shown) {
    std::vector<uint8_t> out(shown.size() * size_bytes(dtype));
    for (size_t n = 0; n < shown.size(); ++n) {
      if (dtype == kF32) {
        const float value = shown[n] ? 0.0F : -std::numeric_limits<float>::infinity();
        std::memcpy(out.data() + 4 * n, &value, 4);
      } else {
        out[n * size_bytes(dtype)] = shown[n];
      }
    }
    return out;
  };
  for (const DType dtype : {kBool, kI64, kF32})
    for (const JointStrategy strategy : {JointStrategy::front, JointStrategy::rear})
      for (const bool own_mask : {true, false})
        for (const auto& [own_rows, joint_rows] :
             {std::pair<int64_t, int64_t>(1, 1), {2, 2}, {1, 2}, {2, 1}}) {
          SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << name(strategy) << ' ' << own_mask
                                          << ' ' << own_rows << ' ' << joint_rows);
          const auto own_shown = [&](int64_t row, int64_t key) {
            return !own_mask || (key + row % own_rows) % 4 != 0;
          };
          const auto joint_shown = [&](int64_t row, int64_t key) {
            return key < 3 + row % joint_rows;
          };
          std::vector<bool> own, joint, whole;
          for (int64_t row = 0; row < own_rows; ++row)
            for (int64_t key = 0; key < 14; ++key) own.push_back(own_shown(row, key));
          for (int64_t row = 0; row < joint_rows; ++row)
            for (int64_t key = 0; key < 6; ++key) joint.push_back(joint_shown(row, key));
          const int64_t first = strategy == JointStrategy::front ? 6 : 14;
          for (int64_t row = 0; row < 2; ++row)
            for (int64_t key = 0; key < 20; ++key) {
              const int64_t at = key < first ? key : key - first;
              const bool of_joint = (key < first) == (first == 6);
              whole.push_back(of_joint ? joint_shown(row, at) : own_shown(row, at));
            }
          auto own_bytes = bytes(dtype, own), joint_bytes = bytes(dtype, joint),
               whole_bytes = bytes(dtype, whole);
          all.mask = make_view(whole_bytes.data(), dtype, {2, 20});
          const auto expected = layer(all);
          ASSERT_TRUE(expected.has_value()) << expected.error().message;
          Streams streams(all, 1, 14, strategy);
          if (own_mask) streams.own.mask = make_view(own_bytes.data(), dtype, {own_rows, 14});
          streams.joint.mask = make_view(joint_bytes.data(), dtype, {joint_rows, 6});
          const auto got = attend_jointly(layer, streams.own, streams.joint);
          ASSERT_TRUE(got.has_value()) << got.error().message;
          EXPECT_EQ(bytes_of(got->out.view()), bytes_of(expected->out.view()));
          EXPECT_EQ(got->receipt->copies, (std::vector<std::string>{"q", "k", "v", "mask"}));
        }
}

TEST(Joint, MasksThatCannotBeJoinedAreNamed) {
  const Problem p = problem_of("f32 b2 h2 s20 d8");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  std::vector<uint8_t> memory(4 * 2 * 20, 1);
  struct Case {
    std::vector<int64_t> own, joint;
    DType own_type;
    const char* message;
  };
  const Case cases[] = {
      {{2, 20}, {2, 6}, kBool, "mask bool[2,20] does not fit beside a joint mask"},
      {{2, 1, 14}, {2, 6}, kBool, "mask bool[2,1,14] does not fit"},
      {{2, 14}, {2, 6}, kU8, "mask u8[2,14] does not fit"},
      {{2, 14}, {2, 7}, kBool, "joint mask bool[2,7] does not fit"},
      {{1, 14}, {3, 6}, kBool, "joint mask bool[3,6] does not fit"}};
  for (const Case& c : cases) {
    Streams streams(inputs->tensors(), 1, 14, JointStrategy::front);
    streams.own.mask = make_view(memory.data(), c.own_type, c.own);
    streams.joint.mask = make_view(memory.data(), kBool, c.joint);
    const auto got = attend_jointly(layer_of(), streams.own, streams.joint);
    ASSERT_FALSE(got.has_value()) << c.message;
    EXPECT_EQ(got.error().code, ErrorCode::invalid_tensor);
    EXPECT_EQ(got.error().message.find(c.message), 0U) << got.error().message;
  }
}

TEST(Joint, WhatDoesNotFitIsNamed) {
  const Problem p = problem_of("f32 b2 h4 hk=2 s10 d8");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  const Streams good(inputs->tensors(), 1, 6, JointStrategy::rear);
  const Attention layer = layer_of();
  struct Case {
    const char* piece;
    void (*change)(AttentionTensors& t, JointTensors& j);
  };
  const Case cases[] = {
      {"joint q is missing", [](AttentionTensors&, JointTensors& j) { j.q = {}; }},
      {"joint v is missing", [](AttentionTensors&, JointTensors& j) { j.v = {}; }},
      {"k is missing", [](AttentionTensors& t, JointTensors&) { t.k = {}; }},
      {"joint k f32[1,4,2,8] does not fit k f32[2,6,2,8]",
       [](AttentionTensors&, JointTensors& j) { j.k.shape[0] = 1; }},
      {"joint q f32[2,4,2,8] does not fit q",
       [](AttentionTensors&, JointTensors& j) { j.q.shape[2] = 2; }},
      {"joint v f32[2,4,2,4] does not fit v",
       [](AttentionTensors&, JointTensors& j) { j.v.shape[3] = 4; }},
      {"joint q bf16[2,4,4,8] does not fit q",
       [](AttentionTensors&, JointTensors& j) { j.q.dtype = kBF16; }},
      {"k", [](AttentionTensors&, JointTensors& j) { j.k.shape[1] = 3; }},
      {"joint q", [](AttentionTensors&, JointTensors& j) { j.q.rank = 3; }},
      {"joint k f32[2,4,2,8] does not fit k", [](AttentionTensors&, JointTensors& j) {
         j.k.device = {DeviceType::cuda, 0};
       }}};
  for (const Case& c : cases) {
    AttentionTensors t = good.own;
    JointTensors j = good.joint;
    c.change(t, j);
    const auto got = attend_jointly(layer, t, j);
    ASSERT_FALSE(got.has_value()) << c.piece;
    EXPECT_NE(got.error().message.find(c.piece), std::string::npos)
        << c.piece << ": " << got.error().message;
  }
  CallOptions packed;
  packed.input_layout = Layout::packed;
  const auto refused = attend_jointly(layer, good.own, good.joint, packed);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().reasons.at(0).code, ReasonCode::packed);
  EXPECT_FALSE(refused.error().reasons.at(0).remedy.empty());
  AttentionTensors far = good.own;
  JointTensors other = good.joint;
  for (TensorView* view : {&far.q, &far.k, &far.v, &other.q, &other.k, &other.v})
    view->device = {DeviceType::cuda, 0};
  const auto device = attend_jointly(layer, far, other);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device.error().reasons.at(0).code, ReasonCode::platform);
}

TEST(Joint, StrategiesHaveNames) {
  EXPECT_EQ(name(JointStrategy::front), "front");
  EXPECT_EQ(name(JointStrategy::rear), "rear");
}

}  // namespace
}  // namespace fovea
