// Clauses 5 to 8 and 10: mask shapes and types, hidden keys, lengths, rows that see nothing.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

FOVEA_CONTRACT_SUITE(ContractMasks);

// Hides some keys differently for every (item, head, row), and the closed form of what is left.
bool sees(int64_t b, int64_t h, int64_t i, int64_t j) {
  return (7 * b + 5 * h + 3 * i + j) % 4 != 1;
}

double mean_index(int64_t keys, const std::function<bool(int64_t)>& visible) {
  double sum = 0;
  double count = 0;
  for (int64_t j = 0; j < keys; ++j)
    if (visible(j)) {
      sum += static_cast<double>(j);
      ++count;
    }
  return count == 0 ? 0 : sum / count;
}

double log_count(int64_t keys, const std::function<bool(int64_t)>& visible) {
  double count = 0;
  for (int64_t j = 0; j < keys; ++j) count += visible(j) ? 1 : 0;
  return std::log(count);
}

TEST_P(ContractMasks, EveryShapeAndTypeSelectsTheSameKeys) {
  const Shape shape{.batch = 2, .seq_q = 5, .seq_kv = 21, .heads_q = 3, .heads_kv = 3};
  for (DType dtype : {kBool, kU8, kI32, kI64, kF32, kF16, kBF16})
    for (int axes = 0; axes < 8; ++axes)
      for (int rank : {2, 3, 4}) {
        const bool per_batch = (axes & 1) != 0;
        const bool per_head = (axes & 2) != 0;
        const bool per_row = (axes & 4) != 0;
        if ((rank < 4 && per_head) || (rank < 3 && per_row)) continue;
        SCOPED_TRACE(std::string(name(dtype)) + " rank " + std::to_string(rank) + " axes " +
                     std::to_string(axes));
        std::vector<int64_t> sizes = {per_batch ? shape.batch : 1};
        if (rank == 4) sizes.push_back(per_head ? shape.heads_q : 1);
        if (rank >= 3) sizes.push_back(per_row ? shape.seq_q : 1);
        sizes.push_back(shape.seq_kv);
        const bool additive = dtype == kF32 || dtype == kF16 || dtype == kBF16;
        Inputs in = index_inputs(kF32, shape);
        in.mask = Tensor(dtype, sizes);
        in.mask.fill([&](int64_t b, int64_t x, int64_t y, int64_t z) {
          const int64_t h = rank == 4 ? x : 0;
          const int64_t i = rank == 4 ? y : rank == 3 ? x : 0;
          const int64_t j = rank == 4 ? z : rank == 3 ? y : x;
          const bool visible = sees(b, h, i, j);
          if (additive) return visible ? 0 : -kInf;
          return visible ? (dtype == kU8 ? 200.0 : 1.0) : 0.0;
        });
        const Answer answer = attend(GetParam(), in);
        const auto visible = [&](int64_t b, int64_t i, int64_t h, int64_t j) {
          return sees(per_batch ? b : 0, per_head ? h : 0, per_row ? i : 0, j);
        };
        expect_rows(answer, [&](int64_t b, int64_t i, int64_t h) {
          return mean_index(shape.seq_kv, [&](int64_t j) { return visible(b, i, h, j); });
        });
        expect_lse(answer, [&](int64_t b, int64_t i, int64_t h) {
          return log_count(shape.seq_kv, [&](int64_t j) { return visible(b, i, h, j); });
        });
      }
}

TEST_P(ContractMasks, MaskMayBeABroadcastView) {
  const Shape shape{.batch = 2, .seq_q = 6, .seq_kv = 19, .heads_q = 2, .heads_kv = 2};
  Inputs in = random_inputs(kF32, shape);
  in.mask = Tensor(kBool, {2, 1, 6, 19}, {32, 7, 0, 1});
  in.mask.fill([](int64_t b, int64_t, int64_t, int64_t j) { return (b + j) % 3 != 0 ? 1.0 : 0.0; });
  expect_agrees(GetParam(), in);
}

TEST_P(ContractMasks, TwoDimensionsAreKeyPaddingAlsoWhenTheBatchEqualsTheRows) {
  Inputs in = index_inputs(kF32, {.batch = 3, .seq_q = 3, .seq_kv = 4});
  in.mask = Tensor(kBool, {3, 4}).fill({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1});
  expect_rows(attend(GetParam(), in), [](int64_t b, int64_t, int64_t) {
    return b == 0 ? 0.0 : b == 1 ? 1.0 : 2.5;
  });
}

TEST_P(ContractMasks, AllTrueEqualsNoMask) {
  const Shape shape{.batch = 2, .seq_q = 33, .seq_kv = 70, .heads_q = 2, .heads_kv = 2};
  std::vector<CallOptions> calls(3);
  AttentionMetadata spans, prefix;
  spans.full_attn_spans = std::vector<Span>{{40, 52}};
  prefix.valid_kv_length = 61;
  calls[0].is_causal = true;
  calls[1].metadata = &spans;
  calls[2].metadata = &prefix;
  calls.emplace_back();
  const auto check = [&](const Answer& plain, const Answer& masked) {
    if (GetParam().host_tensors)
      expect_same_bits(plain, masked);
    else
      expect_close(plain, masked);
  };
  for (DType dtype : kFloatTypes)
    for (const CallOptions& options : calls) {
      Inputs in = random_inputs(dtype, shape);
      const Answer plain = attend(GetParam(), in, options);
      for (DType type : {kBool, kU8, kI32, kI64}) {
        in.mask = Tensor(type, {2, 1, 33, 70}).fill(1.0);
        check(plain, attend(GetParam(), in, options));
        in.mask = Tensor(type, {2, 70}).fill(1.0);
        check(plain, attend(GetParam(), in, options));
      }
      in.mask = Tensor(kF32, {1, 1, 1, 70}).fill(0.0);
      check(plain, attend(GetParam(), in, options));
      in.mask = Tensor(kBF16, {1, 2, 33, 70}).fill(0.0);
      check(plain, attend(GetParam(), in, options));
    }
}

TEST_P(ContractMasks, LengthsEqualTheMaskAndTheSlice) {
  for (DType dtype : kFloatTypes) {
    const Shape shape{.batch = 1, .seq_q = 20, .seq_kv = 90, .heads_q = 2, .heads_kv = 2};
    Inputs in = random_inputs(dtype, shape);
    Inputs sliced = in;
    sliced.k = Tensor(dtype, {1, 61, 2, 8}).fill([&](int64_t b, int64_t j, int64_t h, int64_t d) {
      return in.k.at(b, j, h, d);
    });
    sliced.v = Tensor(dtype, {1, 61, 2, 8}).fill([&](int64_t b, int64_t j, int64_t h, int64_t d) {
      return in.v.at(b, j, h, d);
    });
    const Answer expected = attend(GetParam(), sliced);
    Inputs by_length = in;
    for (DType lengths : {kI32, kI64}) {
      by_length.kv_lengths = Tensor(lengths, {1}).fill(61.0);
      expect_close(attend(GetParam(), by_length), expected);
    }
    Inputs by_mask = in;
    by_mask.mask = Tensor(kBool, {1, 90}).fill([](int64_t, int64_t j, int64_t, int64_t) {
      return j < 61 ? 1.0 : 0.0;
    });
    expect_close(attend(GetParam(), by_mask), expected);
  }
}

TEST_P(ContractMasks, LengthsMaskCausalAndWindowIntersect) {
  const Shape shape{.batch = 3, .seq_q = 12, .seq_kv = 20};
  Inputs in = index_inputs(kF32, shape);
  in.kv_lengths = Tensor(kI32, {3}).fill({12, 15, 20});
  in.mask = Tensor(kBool, {1, 1, 12, 20}).fill([](int64_t, int64_t, int64_t i, int64_t j) {
    return sees(0, 0, i, j) ? 1.0 : 0.0;
  });
  CallOptions options;
  options.is_causal = true;
  options.window = {6, -1};
  const int64_t lengths[] = {12, 15, 20};
  const auto visible = [&](int64_t b, int64_t i, int64_t j) {
    const int64_t diagonal = i + lengths[b] - 12;
    return j < lengths[b] && j <= diagonal && j >= diagonal - 6 && sees(0, 0, i, j);
  };
  const Answer answer = attend(GetParam(), in, options);
  expect_rows(answer, [&](int64_t b, int64_t i, int64_t) {
    return mean_index(20, [&](int64_t j) { return visible(b, i, j); });
  });
  expect_lse(answer, [&](int64_t b, int64_t i, int64_t) {
    return log_count(20, [&](int64_t j) { return visible(b, i, j); });
  });
}

TEST_P(ContractMasks, HolesInPadding) {
  for (DType dtype : kFloatTypes) {
    Inputs in = index_inputs(dtype, {.seq_q = 3, .seq_kv = 150});
    in.mask = Tensor(kBool, {1, 150}).fill([](int64_t, int64_t j, int64_t, int64_t) {
      return j < 11 || (j >= 64 && j < 140) ? 1.0 : 0.0;
    });
    const Answer answer = attend(GetParam(), in);
    const auto visible = [](int64_t j) { return j < 11 || (j >= 64 && j < 140); };
    expect_rows(answer, [&](int64_t, int64_t, int64_t) { return mean_index(150, visible); });
    expect_lse(answer, [&](int64_t, int64_t, int64_t) { return log_count(150, visible); });
  }
}

TEST_P(ContractMasks, LowestFiniteBiasOnWholeRowsGivesTheMean) {
  const double lowest = -static_cast<double>(std::numeric_limits<float>::max());
  for (DType dtype : kFloatTypes)
    for (int64_t keys : {1, 5, 64, 65, 300}) {
      Inputs in = random_inputs(dtype, {.seq_q = 3, .seq_kv = keys});
      in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return static_cast<double>(j % 7); });
      in.mask = Tensor(kF32, {1, keys}).fill(lowest);
      const Answer answer = attend(GetParam(), in);
      double mean = 0;
      for (int64_t j = 0; j < keys; ++j) mean += static_cast<double>(j % 7);
      mean /= static_cast<double>(keys);
      expect_rows(answer, [&](int64_t, int64_t, int64_t) { return mean; });
      if (!answer.ran) return;
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(std::isfinite(answer.lse.at(0, 0, i)));
        EXPECT_NEAR(answer.lse.at(0, 0, i) / lowest, 1, 1e-6);
      }
    }
}

TEST_P(ContractMasks, LowestFiniteBiasNextToAnOrdinaryOneHasNoWeight) {
  const double lowest = -static_cast<double>(std::numeric_limits<float>::max());
  Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 130});
  in.mask = Tensor(kF32, {1, 130}).fill([=](int64_t, int64_t j, int64_t, int64_t) {
    return j % 2 == 0 ? lowest : 0.0;
  });
  const Answer answer = attend(GetParam(), in);
  expect_rows(answer, [](int64_t, int64_t, int64_t) { return 65.0; });
  expect_lse(answer, [](int64_t, int64_t, int64_t) { return std::log(65.0); });
}

TEST_P(ContractMasks, LargeNegativeBiasOnWholeRowsKeepsItsWeights) {
  // -10000 stands for "hidden" in many models; a row of nothing else is uniform, not empty.
  for (DType dtype : kFloatTypes) {
    Inputs in = index_inputs(dtype, {.seq_q = 2, .seq_kv = 100});
    in.mask = Tensor(kF32, {1, 100}).fill(-10000.0);
    const Answer answer = attend(GetParam(), in);
    expect_rows(answer, [](int64_t, int64_t, int64_t) { return 49.5; });
    expect_lse(answer, [](int64_t, int64_t, int64_t) { return -10000 + std::log(100.0); });
  }
}

TEST_P(ContractMasks, LowestFiniteF16AndBf16Biases) {
  for (const auto& [dtype, lowest] :
       {std::pair(kF16, -65504.0), std::pair(kBF16, -3.3895313892515355e38)}) {
    Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 9});
    in.mask = Tensor(dtype, {1, 9}).fill(lowest);
    const Answer answer = attend(GetParam(), in);
    expect_rows(answer, [](int64_t, int64_t, int64_t) { return 4.0; });
    if (!answer.ran) return;
    // Kernels that count in powers of two cannot tell the lowest numbers apart, hence 1 %.
    EXPECT_NEAR(answer.lse.at(0, 0, 0) / lowest, 1, 1e-2);
  }
}

TEST_P(ContractMasks, NanAndPlusInfinityInAnAdditiveMaskMakeTheRowNan) {
  for (DType dtype : kFloatTypes)
    for (double bad : {kNaN, kInf}) {
      Inputs in = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
      in.mask = Tensor(kF32, {1, 1, 70, 130}).fill([&](int64_t, int64_t, int64_t i, int64_t j) {
        return i == 41 && j == 67 ? bad : static_cast<double>(j % 3);
      });
      const Answer answer = attend(GetParam(), in);
      if (!answer.ran) return;
      for (int64_t i = 0; i < 70; ++i) {
        EXPECT_EQ(std::isnan(answer.out.at(0, i, 0, 3)), i == 41) << "row " << i;
        EXPECT_EQ(std::isnan(answer.lse.at(0, 0, i)), i == 41) << "row " << i;
      }
    }
}

TEST_P(ContractMasks, BiasValuesAreAddedToScaledScores) {
  // Weights 1 : 2 : 4 from biases 0, ln 2, ln 4.
  Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 3});
  in.mask = Tensor(kF32, {1, 3}).fill({0, std::log(2.0), std::log(4.0)});
  CallOptions options;
  options.scale = 0.25;  // does not touch the bias
  const Answer answer = attend(GetParam(), in, options);
  expect_rows(answer, [](int64_t, int64_t, int64_t) { return (2 * 1.0 + 4 * 2.0) / 7; });
  expect_lse(answer, [](int64_t, int64_t, int64_t) { return std::log(7.0); });
}

TEST_P(ContractMasks, IntegerMasksHoldOnlyZeroAndOne) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  for (DType dtype : {kI32, kI64}) {
    Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 5});
    in.mask = Tensor(dtype, {1, 5}).fill({1, 1, 0, 7, 0});
    CallOptions options;
    auto problem = describe(in.tensors(), options);
    ASSERT_TRUE(problem.has_value()) << problem.error().message;
    const auto ready = plan(GetParam(), *problem);
    if (!ready) continue;
    AttentionTensors tensors = in.tensors();
    const Tensor out(kF32, {1, 2, 1, 8});
    tensors.out = out.view();
    const uint64_t before = out.hash();
    const Status status = GetParam().launcher->launch(*ready, tensors);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_value);
    for (const char* part : {"mask", "7", "3", name(dtype).data()})
      EXPECT_NE(status.error().message.find(part), std::string::npos)
          << part << " in " << status.error().message;
    EXPECT_EQ(out.hash(), before) << "outputs stay untouched";
  }
}

TEST_P(ContractMasks, EmptyRowsAreZeroWithMinusInfinity) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.batch = 3, .seq_q = 70, .seq_kv = 66});
    in.kv_lengths = Tensor(kI32, {3}).fill({0, 66, 40});
    in.mask = Tensor(kBool, {1, 1, 70, 66}).fill([](int64_t, int64_t, int64_t i, int64_t j) {
      return i % 3 != 1 && !(i == 5 && j < 40) ? 1.0 : 0.0;
    });
    const Answer answer = attend(GetParam(), in);
    if (!answer.ran) return;
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t i = 0; i < 70; ++i) {
        const bool empty = b == 0 || i % 3 == 1 || (b == 2 && i == 5);
        EXPECT_EQ(answer.lse.at(b, 0, i) == -kInf, empty) << b << ' ' << i;
        for (int64_t d = 0; empty && d < 8; ++d)
          EXPECT_EQ(answer.out.at(b, i, 0, d), 0) << b << ' ' << i;
      }
  }
}

}  // namespace
}  // namespace fovea::contract
