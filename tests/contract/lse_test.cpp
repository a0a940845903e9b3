// Clauses 11 and 14: the log-sum-exp, and accuracy where it is hard to keep.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"
#include "tests/contract/merge.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_SUITE(ContractLse);

TEST_P(ContractLse, IsTheNaturalLogarithmOfTheSum) {
  for (DType dtype : kFloatTypes)
    for (int64_t keys : {1, 2, 7, 64, 100, 1000}) {
      const Answer answer = attend(GetParam(), index_inputs(dtype, {.seq_q = 3, .seq_kv = keys}));
      expect_lse(answer,
                 [&](int64_t, int64_t, int64_t) { return std::log(static_cast<double>(keys)); });
    }
}

TEST_P(ContractLse, ShapeIsItemHeadRowInEveryLayout) {
  // The LSE of (item, head, row) is its own number.
  const int64_t batch = 2;
  const int64_t heads = 3;
  const int64_t rows = 4;
  for (Layout layout : {Layout::bshd, Layout::bhsd}) {
    Inputs in;
    const bool swap = layout == Layout::bhsd;
    in.q = swap ? Tensor(kF32, {batch, heads, rows, 1}) : Tensor(kF32, {batch, rows, heads, 1});
    in.q.fill([&](int64_t b, int64_t x, int64_t y, int64_t) {
      const int64_t h = swap ? x : y;
      const int64_t i = swap ? y : x;
      return static_cast<double>(100 * b + 10 * h + i) / 64;
    });
    in.k =
        (swap ? Tensor(kF32, {batch, heads, 1, 1}) : Tensor(kF32, {batch, 1, heads, 1})).fill(1.0);
    in.v = in.k;
    CallOptions options;
    options.input_layout = layout;
    options.scale = 1.0;
    const Answer answer = attend(GetParam(), in, options);
    if (!answer.ran) return;
    ASSERT_EQ(answer.lse.view().rank, 3);
    EXPECT_EQ(answer.lse.view().dtype, kF32);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < rows; ++i)
          EXPECT_NEAR(answer.lse.at(b, h, i), static_cast<double>(100 * b + 10 * h + i) / 64, 1e-5);
  }
}

TEST_P(ContractLse, PackedShapeIsHeadToken) {
  Inputs in;
  in.q = Tensor(kF32, {5, 2, 1}).fill([](int64_t i, int64_t h, int64_t, int64_t) {
    return static_cast<double>(10 * h + i) / 64;
  });
  in.k = Tensor(kF32, {2, 2, 1}).fill(1.0);
  in.v = Tensor(kF32, {2, 2, 1}).fill(1.0);
  in.cu_seqlens_q = Tensor(kI32, {3}).fill({0, 2, 5});
  in.cu_seqlens_kv = Tensor(kI32, {3}).fill({0, 1, 2});
  CallOptions options;
  options.input_layout = Layout::packed;
  options.scale = 1.0;
  const Answer answer = attend(GetParam(), in, options);
  if (!answer.ran) return;
  ASSERT_EQ(answer.lse.view().rank, 2);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_NEAR(answer.lse.at(h, i), static_cast<double>(10 * h + i) / 64, 1e-5);
}

TEST_P(ContractLse, IncludesScaleAndBias) {
  Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 1, .head_dim = 2});
  in.q.fill({3, 4});
  in.k.fill({5, 6});
  in.mask = Tensor(kF32, {1, 1}).fill(-2.5);
  CallOptions options;
  options.scale = 0.5;
  expect_lse(attend(GetParam(), in, options),
             [](int64_t, int64_t, int64_t) { return 0.5 * 39 - 2.5; });
}

TEST_P(ContractLse, SplitKeysMergeToTheWhole) {
  for (DType dtype : {kF32, kBF16}) {
    const Shape shape{.batch = 2, .seq_q = 20, .seq_kv = 100, .heads_q = 2, .heads_kv = 1};
    Inputs in = random_inputs(dtype, shape);
    CallOptions options;
    options.out_dtype = kF32;
    const Answer whole = attend(GetParam(), in, options);
    const auto part = [&](int64_t begin, int64_t size) {
      Inputs cut = in;
      cut.k = Tensor(dtype, {2, size, 1, 8}).fill([&](int64_t b, int64_t j, int64_t h, int64_t d) {
        return in.k.at(b, begin + j, h, d);
      });
      cut.v = Tensor(dtype, {2, size, 1, 8}).fill([&](int64_t b, int64_t j, int64_t h, int64_t d) {
        return in.v.at(b, begin + j, h, d);
      });
      return attend(GetParam(), cut, options);
    };
    const Merged merged = merge({part(0, 37), part(37, 0), part(37, 63)});
    expect_merged(merged, whole);
  }
}

TEST_P(ContractLse, ManyKeysKeepTheAccuracyOfF32) {
  // 40,000 equal keys: a single running sum in float32 would be off by more than 2e-6.
  Inputs in = index_inputs(kF32, {.seq_q = 3, .seq_kv = 40000});
  in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return j % 3 == 0 ? 1.0 : 0.25; });
  const Answer answer = attend(GetParam(), in);
  const double mean = (13334 * 1.0 + 26666 * 0.25) / 40000;
  expect_rows(answer, [&](int64_t, int64_t, int64_t) { return mean; });
  expect_lse(answer, [](int64_t, int64_t, int64_t) { return std::log(40000.0); });
}

TEST_P(ContractLse, LargeScoresStayWithinTheAddedBound) {
  for (DType dtype : kFloatTypes)
    for (int64_t dim : {64, 80, 128, 256, 512})
      for (double scale : {1.0, 10.0, 100.0}) {
        SCOPED_TRACE("head_dim " + std::to_string(dim) + ", scale " + std::to_string(scale));
        // Tensor cores truncate where they add: 16 sums of 16 products miss the bound by a quarter
        // (docs/contract.md).
        const bool truncated = !GetParam().host_tensors && dtype != kF32 && dim > 128;
        if (truncated && scale > 1) continue;
        const Inputs in = random_inputs(dtype, {.batch = 1,
                                                .seq_q = 200,
                                                .seq_kv = 90,
                                                .heads_q = 2,
                                                .heads_kv = 2,
                                                .head_dim = dim,
                                                .dim_v = 16});
        CallOptions options;
        options.scale = scale;
        expect_agrees(GetParam(), in, options);
      }
}

TEST_P(ContractLse, ConstantShiftsOfTheScoresCancel) {
  // Keys with a common logit of -20 or -80: the output is the plain mean.
  for (DType dtype : kFloatTypes)
    for (double logit : {-20.0, -80.0, 80.0}) {
      Inputs in = index_inputs(dtype, {.seq_q = 2, .seq_kv = 209, .head_dim = 1});
      in.q.fill(1.0);
      in.k.fill(logit);
      CallOptions options;
      options.scale = 1.0;
      const Answer answer = attend(GetParam(), in, options);
      expect_rows(answer, [](int64_t, int64_t, int64_t) { return 104.0; });
      expect_lse(answer, [&](int64_t, int64_t, int64_t) { return logit + std::log(209.0); });
    }
}

TEST_P(ContractLse, StructuredDataMeetsItsBound) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.batch = 1,
                                      .seq_q = 60,
                                      .seq_kv = 300,
                                      .heads_q = 2,
                                      .heads_kv = 2,
                                      .head_dim = 32,
                                      .dim_v = 32});
    in.v.fill([](int64_t, int64_t j, int64_t h, int64_t d) {
      return 1 + std::sin(0.05 * static_cast<double>(j) + 0.3 * static_cast<double>(d + h));
    });
    expect_agrees(GetParam(), in, {}, DataKind::structured);
    CallOptions options;
    options.out_dtype = kF32;
    expect_agrees(GetParam(), in, options, DataKind::structured);
  }
}

TEST_P(ContractLse, ZeroReferenceIsMeasuredAbsolutely) {
  Inputs in = random_inputs(kF32, {.seq_q = 5, .seq_kv = 9});
  in.v.fill(0.0);
  expect_agrees(GetParam(), in);
}

}  // namespace
}  // namespace fovea::contract
