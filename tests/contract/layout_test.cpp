// Clauses 1, 2, 4 and 13: layouts, strides, outputs, scale, grouped heads, sizes.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_SUITE(ContractLayout);

// The same values in another memory order: axis order 0..3 of [B,S,H,D] from slowest to fastest,
// with `gap` unused elements after every innermost run.
Tensor restored(const Tensor& from, const std::array<size_t, 4>& order, int64_t gap) {
  std::vector<int64_t> shape(from.view().shape.begin(), from.view().shape.begin() + 4);
  std::vector<int64_t> strides(4);
  int64_t step = 1;
  for (size_t i = 4; i-- > 0;) {
    strides[order[i]] = step;
    step = step * shape[order[i]] + (i == 3 ? gap : 0);
  }
  return Tensor(from.view().dtype, shape, strides)
      .fill([&](int64_t b, int64_t s, int64_t h, int64_t d) { return from.at(b, s, h, d); });
}

TEST_P(ContractLayout, StridedInputsEqualTheirContiguousCopy) {
  for (DType dtype : kFloatTypes)
    for (int64_t dim : {64, 65}) {
      const Shape shape{.batch = 2,
                        .seq_q = 37,
                        .seq_kv = 70,
                        .heads_q = 4,
                        .heads_kv = 2,
                        .head_dim = dim,
                        .dim_v = dim};
      const Inputs in = random_inputs(dtype, shape);
      const Answer expected = attend(GetParam(), in);
      for (const auto& order : {std::array<size_t, 4>{0, 1, 2, 3},
                                {0, 2, 1, 3},
                                {2, 0, 1, 3},
                                {1, 2, 0, 3},
                                {2, 1, 0, 3}})
        for (int64_t gap : {0, 3, 64}) {
          Inputs strided = in;
          strided.q = restored(in.q, order, gap);
          strided.k = restored(in.k, order, gap);
          strided.v = restored(in.v, order, gap);
          expect_close(attend(GetParam(), strided), expected);
        }
    }
}

TEST_P(ContractLayout, ZeroStridesAreReadInPlace) {
  for (DType dtype : kFloatTypes) {
    Inputs in;
    in.q = Tensor(dtype, {3, 20, 4, 16}, {0, 16, 0, 1}).random(1);
    in.k = Tensor(dtype, {3, 33, 4, 16}, {0, 16, 0, 1}).random(2);
    in.v = Tensor(dtype, {3, 33, 4, 16}, {0, 16, 0, 1}).random(3);
    expect_agrees(GetParam(), in);
    in.k = Tensor(dtype, {3, 33, 4, 16}, {16, 0, 0, 1}).random(2);
    in.v = Tensor(dtype, {3, 33, 4, 16}, {16, 0, 0, 1}).random(3);
    expect_agrees(GetParam(), in);
  }
}

TEST_P(ContractLayout, NegativeAndInnerStridesAreArgumentErrors) {
  Inputs in = random_inputs(kF32, {.seq_q = 4, .seq_kv = 4});
  AttentionTensors tensors = in.tensors();
  tensors.q.stride[1] = -8;
  auto problem = describe(tensors, {});
  ASSERT_FALSE(problem.has_value());
  EXPECT_NE(problem.error().message.find("q"), std::string::npos);
  tensors = in.tensors();
  tensors.v.stride[3] = 2;
  EXPECT_FALSE(describe(tensors, {}).has_value());
}

TEST_P(ContractLayout, OutputFollowsTheLayoutAskedFor) {
  const Shape shape{.batch = 2, .seq_q = 9, .seq_kv = 12, .heads_q = 3, .heads_kv = 3};
  const Inputs bshd = random_inputs(kF32, shape);
  const Answer expected = attend(GetParam(), bshd);
  Inputs bhsd;
  const auto swap = [](const Tensor& from, int64_t seq) {
    return Tensor(kF32, {2, 3, seq, 8}).fill([&](int64_t b, int64_t h, int64_t s, int64_t d) {
      return from.at(b, s, h, d);
    });
  };
  bhsd.q = swap(bshd.q, 9);
  bhsd.k = swap(bshd.k, 12);
  bhsd.v = swap(bshd.v, 12);
  for (Layout input : {Layout::bshd, Layout::bhsd})
    for (Layout output : {Layout::bshd, Layout::bhsd}) {
      CallOptions options;
      options.input_layout = input;
      options.output_layout = output;
      const Answer answer = attend(GetParam(), input == Layout::bshd ? bshd : bhsd, options);
      if (!answer.ran) return;
      EXPECT_EQ(answer.lse.view().shape, expected.lse.view().shape);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 3; ++h)
          for (int64_t i = 0; i < 9; ++i)
            for (int64_t d = 0; d < 8; ++d)
              EXPECT_NEAR(
                  output == Layout::bshd ? answer.out.at(b, i, h, d) : answer.out.at(b, h, i, d),
                  expected.out.at(b, i, h, d), 1e-5);
    }
}

TEST_P(ContractLayout, OutputMustNotOverlapAnInput) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  Inputs in = random_inputs(kF32, {.seq_q = 6, .seq_kv = 6});
  CallOptions options;
  auto problem = describe(in.tensors(), options);
  ASSERT_TRUE(problem.has_value());
  const auto ready = plan(GetParam(), *problem);
  if (!ready) return;
  for (int which = 0; which < 3; ++which) {
    AttentionTensors tensors = in.tensors();
    tensors.out = (which == 0 ? tensors.q : which == 1 ? tensors.k : tensors.v);
    const uint64_t before = in.q.hash() ^ in.k.hash() ^ in.v.hash();
    const Status status = GetParam().launcher->launch(*ready, tensors);
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("overlap"), std::string::npos) << status.error().message;
    EXPECT_EQ(in.q.hash() ^ in.k.hash() ^ in.v.hash(), before);
  }
}

TEST_P(ContractLayout, F32OutputIsNotRoundedToTheInputType) {
  for (DType dtype : {kF16, kBF16}) {
    Inputs in = index_inputs(dtype, {.seq_q = 2, .seq_kv = 3});
    in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return j == 0 ? 1.0 : 0.0; });
    CallOptions options;
    options.out_dtype = kF32;
    const Answer answer = attend(GetParam(), in, options);
    if (!answer.ran) continue;
    EXPECT_EQ(answer.out.view().dtype, kF32);
    // 1/3 rounded to f16 is off by 8e-5, to bf16 by 6.5e-4.
    EXPECT_NEAR(answer.out.at(0, 1, 0, 0), 1.0 / 3, 1e-6);
  }
}

TEST_P(ContractLayout, MixedOrOtherElementTypesAreArgumentErrors) {
  const Shape shape{.seq_q = 3, .seq_kv = 3};
  Inputs in = random_inputs(kF32, shape);
  in.k = random_inputs(kBF16, shape).k;
  EXPECT_FALSE(describe(in.tensors(), {}).has_value());
  in = random_inputs(kF64, shape);
  EXPECT_FALSE(describe(in.tensors(), {}).has_value());
}

TEST_P(ContractLayout, ScaleMultipliesTheScores) {
  // q.k = 2 for key 1 and 0 for key 0: weights 1 : exp(2 scale).
  for (double scale : {0.125, 0.5, 1.0, 3.0}) {
    Inputs in = index_inputs(kF32, {.seq_kv = 2, .head_dim = 4});
    in.q.fill(1.0);
    in.k.fill([](int64_t, int64_t j, int64_t, int64_t) { return 0.5 * static_cast<double>(j); });
    CallOptions options;
    options.scale = scale;
    const double e = std::exp(2 * scale);
    const Answer answer = attend(GetParam(), in, options);
    expect_rows(answer, [&](int64_t, int64_t, int64_t) { return e / (1 + e); });
    expect_lse(answer, [&](int64_t, int64_t, int64_t) { return std::log(1 + e); });
  }
}

TEST_P(ContractLayout, ScaleMustBeFiniteAndPositive) {
  const Inputs in = random_inputs(kF32, {.seq_q = 2, .seq_kv = 2});
  for (double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
    CallOptions options;
    options.scale = scale;
    auto problem = describe(in.tensors(), options);
    ASSERT_FALSE(problem.has_value());
    EXPECT_NE(problem.error().message.find("scale"), std::string::npos);
  }
}

TEST_P(ContractLayout, QueryHeadsReadTheirKeyHead) {
  for (const auto& [hq, hk] :
       {std::pair<int64_t, int64_t>(6, 6), {6, 3}, {6, 2}, {6, 1}, {32, 8}}) {
    Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 3, .heads_q = hq, .heads_kv = hk});
    in.v.fill([](int64_t, int64_t, int64_t h, int64_t) { return static_cast<double>(h + 1); });
    const int64_t group = hq / hk;
    expect_rows(attend(GetParam(), in),
                [&](int64_t, int64_t, int64_t h) { return static_cast<double>(h / group + 1); });
  }
}

TEST_P(ContractLayout, EmptyProblemsAreLegal) {
  for (DType dtype : kFloatTypes) {
    const Answer no_rows = attend(GetParam(), random_inputs(dtype, {.seq_q = 0, .seq_kv = 5}));
    const Answer no_batch =
        attend(GetParam(), random_inputs(dtype, {.batch = 0, .seq_q = 3, .seq_kv = 5}));
    EXPECT_EQ(no_rows.out.view().numel(), 0);
    EXPECT_EQ(no_batch.lse.view().numel(), 0);
    const Answer no_keys = attend(GetParam(), random_inputs(dtype, {.seq_q = 3, .seq_kv = 0}));
    expect_rows(no_keys, [](int64_t, int64_t, int64_t) { return 0.0; });
    expect_lse(no_keys,
               [](int64_t, int64_t, int64_t) { return -std::numeric_limits<double>::infinity(); });
  }
}

TEST_P(ContractLayout, ItemsAndHeadsAreIndependent) {
  // Reversing items and heads of the inputs reverses the outputs, to the bit.
  const Shape shape{.batch = 3, .seq_q = 20, .seq_kv = 40, .heads_q = 4, .heads_kv = 4};
  const Inputs in = random_inputs(kF32, shape);
  const auto reversed = [](const Tensor& from, int64_t seq) {
    return Tensor(kF32, {3, seq, 4, 8}).fill([&](int64_t b, int64_t s, int64_t h, int64_t d) {
      return from.at(2 - b, s, 3 - h, d);
    });
  };
  Inputs back;
  back.q = reversed(in.q, 20);
  back.k = reversed(in.k, 40);
  back.v = reversed(in.v, 40);
  const Answer a = attend(GetParam(), in);
  const Answer b = attend(GetParam(), back);
  if (!a.ran || !b.ran || !a.receipt.deterministic) return;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t s = 0; s < 20; ++s)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t d = 0; d < 8; ++d)
          EXPECT_EQ(a.out.at(i, s, h, d), b.out.at(2 - i, s, 3 - h, d));
}

TEST_P(ContractLayout, DeclaredDeterminismIsBitwise) {
  for (DType dtype : kFloatTypes) {
    const Inputs in =
        random_inputs(dtype, {.batch = 1, .seq_q = 70, .seq_kv = 700, .heads_q = 3, .heads_kv = 3});
    const Answer first = attend(GetParam(), in);
    if (!first.ran || !first.receipt.deterministic) return;
    for (int run = 0; run < 3; ++run) expect_same_bits(first, attend(GetParam(), in));
  }
}

}  // namespace
}  // namespace fovea::contract
