#include "src/backends/run_tensors.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "src/core/random_inputs.hpp"

namespace fovea::backends {
namespace {

struct Call {
  Problem problem;
  RandomInputs inputs;
  AttentionTensors tensors;
};

Call make(const std::string& text) {
  Call call;
  call.problem = *parse_problem(text);
  call.inputs = std::move(make_random_inputs(call.problem)).value();
  call.tensors = call.inputs.tensors();
  return call;
}

TEST(RunTensors, EveryFormOfAPlannedCallPasses) {
  for (const char* text :
       {"f32 b2 h4 s5 d8 hk=2 sk=7 dv=3 lse=1",
        "bf16 b2 h2 s5 d8 layout=bhsd outlayout=bshd out=f32",
        "f16 b1 h2 s9 d8 layout=packed docs=4:4,5:5 lse=1", "f32 b2 h2 s5 d8 mask=keys kvlen=1,5",
        "f32 b2 h2 s5 d8 mask=bool maskdims=none", "f32 b2 h2 s5 d8 mask=bias maskdims=bhq",
        "f32 b0 h2 s5 d8", "f32 b2 h2 s0 d8 sk=0", "f32 b2 h4 s5 d8 hk=2 strides=expanded",
        "f32 b1 h1 s1 d1 strides=custom:9,9,9/9,9,9/9,9,9"}) {
    Call call = make(text);
    const Status status = check_tensors(call.problem, call.tensors);
    EXPECT_TRUE(status.has_value()) << text << ": " << status.error().message;
  }
}

TEST(RunTensors, AxesOfSizeOneMayHaveAnyStride) {
  Call call = make("f32 b1 h1 s5 d8");
  call.tensors.q.stride[0] = 12345;
  call.tensors.k.stride[2] = 0;
  EXPECT_TRUE(check_tensors(call.problem, call.tensors).has_value());
}

TEST(RunTensors, BroadcastMasksOfThreeAndFourAxes) {
  Call call = make("f32 b2 h3 s5 d8 sk=7 mask=bool");
  TensorView& mask = call.tensors.mask;
  ASSERT_EQ(mask.rank, 4);
  EXPECT_TRUE(check_inputs(call.problem, call.tensors).has_value());
  mask = make_view(mask.data, kBool, {2, 5, 7});
  EXPECT_TRUE(check_inputs(call.problem, call.tensors).has_value());
  mask.stride[1] = 0;  // one row for all queries, read in place
  EXPECT_TRUE(check_inputs(call.problem, call.tensors).has_value());
  mask.stride[2] = 2;
  EXPECT_FALSE(check_inputs(call.problem, call.tensors).has_value());
  mask = make_view(mask.data, kBool, {2, 1, 7});
  EXPECT_FALSE(check_inputs(call.problem, call.tensors).has_value());
}

TEST(RunTensors, MessagesNameTensorFieldAndPlan) {
  struct Fault {
    const char* parts[3];
    std::function<void(AttentionTensors&)> apply;
  };
  const Fault faults[] = {
      {{"q", "shape [2,4,2,8]", "planned [2,5,2,8]"},
       [](AttentionTensors& t) { t.q.shape[1] = 4; }},
      {{"k", "strides [80,17,8,1]", "planned [80,16,8,1]"},
       [](AttentionTensors& t) { t.k.stride[1] = 17; }},
      {{"v", "dtype f16", "planned f32"}, [](AttentionTensors& t) { t.v.dtype = kF16; }},
      {{"v", "cuda:1", "cpu"},
       [](AttentionTensors& t) {
         t.v.device = {DeviceType::cuda, 1};
       }},
      {{"lse", "is given", "made without it"},
       [](AttentionTensors& t) {
         t.lse = make_view(t.q.data, kF32, {2, 2, 5});
       }},
      {{"out", "not contiguous", "plan again"}, [](AttentionTensors& t) { t.out.stride[0] = 100; }},
      {{"out", "overlaps", "k"},
       [](AttentionTensors& t) { t.out.data = static_cast<float*>(t.k.data) + 159; }},
  };
  for (const Fault& fault : faults) {
    Call call = make("f32 b2 h2 s5 d8");
    fault.apply(call.tensors);
    const Status status = check_tensors(call.problem, call.tensors);
    ASSERT_FALSE(status.has_value()) << fault.parts[0];
    EXPECT_EQ(status.error().code, ErrorCode::invalid_tensor);
    EXPECT_EQ(status.error().message.rfind(fault.parts[0], 0), 0u) << status.error().message;
    for (const char* part : fault.parts)
      EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
}

TEST(RunTensors, AlignmentIsCheckedOnlyWhereAsked) {
  Call call = make("f32 b2 h2 s5 d8 align=4");
  EXPECT_TRUE(check_tensors(call.problem, call.tensors).has_value());
  const Status status = check_tensors(call.problem, call.tensors, kCpu, 16);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("16 bytes"), std::string::npos);
  call = make("f32 b2 h2 s5 d8");
  call.tensors.out.data = static_cast<float*>(call.tensors.out.data) + 1;
  const Status output = check_tensors(call.problem, call.tensors, kCpu, 16);
  ASSERT_FALSE(output.has_value());
  EXPECT_EQ(output.error().message.rfind("out is not aligned", 0), 0u) << output.error().message;
}

TEST(RunTensors, Workspace) {
  alignas(256) char memory[512];
  EXPECT_TRUE(check_workspace({}, 0).has_value());
  EXPECT_TRUE(check_workspace({memory, 512}, 512).has_value());
  EXPECT_EQ(check_workspace({memory, 511}, 512).error().code, ErrorCode::workspace_too_small);
  EXPECT_EQ(check_workspace({nullptr, 512}, 512).error().code, ErrorCode::workspace_too_small);
  EXPECT_EQ(check_workspace({memory + 64, 256}, 256).error().code, ErrorCode::invalid_argument);
}

// The check with most of its work done beforehand says what the whole check says.
TEST(RunTensors, PlannedTensorsAgreeWithTheWholeCheck) {
  using Change = std::function<void(AttentionTensors&)>;
  const Change changes[] = {
      [](AttentionTensors&) {},
      [](AttentionTensors& t) { t.q.data = nullptr; },
      [](AttentionTensors& t) { t.k.shape[1] += 1; },
      [](AttentionTensors& t) { t.v.stride[0] += 8; },
      [](AttentionTensors& t) { t.k.dtype = kI64; },
      [](AttentionTensors& t) {
        t.q.device = {DeviceType::cuda, 1};
      },
      [](AttentionTensors& t) { t.q.rank = 2; },
      [](AttentionTensors& t) { t.out.data = static_cast<char*>(t.v.data) + 4; },
      [](AttentionTensors& t) { t.lse.data = t.out.data; },
      [](AttentionTensors& t) { t.lse = {}; },
      [](AttentionTensors& t) { t.out.data = static_cast<char*>(t.out.data) + 4; },
      [](AttentionTensors& t) { t.kv_lengths = t.q; },
      [](AttentionTensors& t) { t.cu_seqlens_q = {}; },
      [](AttentionTensors& t) { t.mask = t.k; },
      [](AttentionTensors& t) { t.block_counts = t.k; },
      [](AttentionTensors& t) { std::swap(t.q, t.out); },
  };
  int accepted = 0, refused = 0;
  for (const char* text :
       {"f32 b2 h4 s5 d8 hk=2 sk=7 dv=3 lse=1",
        "bf16 b2 h2 s5 d8 layout=bhsd outlayout=bshd out=f32",
        "f16 b1 h2 s9 d8 layout=packed docs=4:4,5:5 lse=1", "f32 b2 h2 s5 d8 mask=keys kvlen=1,5",
        "f32 b2 h2 s5 d8 mask=bias maskdims=bhq", "f32 b0 h2 s5 d8", "f32 b2 h2 s0 d8 sk=0",
        "f32 b2 h4 s5 d8 hk=2 strides=expanded", "f32 b1 h1 s1 d1 strides=custom:9,9,9/9,9,9/9,9,9",
        "f32 b2 h2 s5 d8 kvlen=1,5"})
    for (const size_t alignment : {size_t{1}, size_t{16}}) {
      const Call call = make(text);
      const PlannedTensors planned(call.problem, kCpu, alignment);
      for (size_t i = 0; i < std::size(changes); ++i) {
        AttentionTensors tensors = call.tensors;
        changes[i](tensors);
        const Status whole = check_tensors(call.problem, tensors, kCpu, alignment);
        const Status quick = planned.check(tensors);
        ASSERT_EQ(whole.has_value(), quick.has_value()) << text << ", change " << i;
        if (!whole) {
          EXPECT_EQ(whole.error().message, quick.error().message);
        }
        (whole ? accepted : refused)++;
      }
    }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace fovea::backends
