// Faults that users of other attention libraries reported, one test each. The numbers are those of
// the project's table of reports; every test states the right answer and, where there was one, the
// wrong one.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

FOVEA_CONTRACT_SUITE(BugReports);

double one(int64_t, int64_t, int64_t) { return 1.0; }

// The keys [0, keys) of an input.
Inputs first_keys(const Inputs& in, int64_t keys) {
  const TensorView& k = in.k.view();
  const TensorView& v = in.v.view();
  Inputs cut = in;
  cut.mask = {};
  cut.kv_lengths = {};
  cut.k =
      Tensor(k.dtype, {k.shape[0], keys, k.shape[2], k.shape[3]})
          .fill([&](int64_t b, int64_t j, int64_t h, int64_t d) { return in.k.at(b, j, h, d); });
  cut.v =
      Tensor(v.dtype, {v.shape[0], keys, v.shape[2], v.shape[3]})
          .fill([&](int64_t b, int64_t j, int64_t h, int64_t d) { return in.v.at(b, j, h, d); });
  return cut;
}

TEST_P(BugReports, BugRow01_KeyPaddingInCrossAttentionWithOtherLengths) {
  // Queries must not be unpadded with the keys' mask: no zero rows, every item its own keys.
  Inputs in = random_inputs(kF32, {.batch = 2,
                                   .seq_q = 64,
                                   .seq_kv = 32,
                                   .heads_q = 2,
                                   .heads_kv = 2,
                                   .head_dim = 16,
                                   .dim_v = 16});
  in.mask = Tensor(kBool, {2, 32}).fill([](int64_t, int64_t j, int64_t, int64_t) {
    return j < 20 ? 1.0 : 0.0;
  });
  const Answer answer = attend(GetParam(), in);
  expect_close(answer, attend(GetParam(), first_keys(in, 20)));
  if (!answer.ran) return;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 64; ++i) {
      double norm = 0;
      for (int64_t d = 0; d < 16; ++d) norm += std::abs(answer.out.at(b, i, 0, d));
      EXPECT_GT(norm, 0) << b << ' ' << i;
    }
}

TEST_P(BugReports, BugRow02_MaskOfOneItemIsHonoured) {
  Inputs in = random_inputs(kF32, {.batch = 2, .seq_q = 128, .seq_kv = 128});
  in.v.fill(
      [](int64_t b, int64_t j, int64_t, int64_t) { return b == 1 && j >= 64 ? 1000.0 : 1.0; });
  in.mask = Tensor(kBool, {2, 128}).fill([](int64_t b, int64_t j, int64_t, int64_t) {
    return b == 1 && j >= 64 ? 0.0 : 1.0;
  });
  expect_rows(attend(GetParam(), in), one);
}

TEST_P(BugReports, BugRow03_LeftPaddingIsNotTheFirstKeys) {
  Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 8});
  in.mask = Tensor(kBool, {1, 8}).fill({0, 0, 0, 1, 1, 1, 1, 1});
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 5.0; });  // not 2
}

TEST_P(BugReports, BugRow05_AllTrueMaskIsNoMask) {
  Inputs in = random_inputs(kBF16, {.batch = 2, .seq_q = 70, .seq_kv = 70});
  const Answer plain = attend(GetParam(), in);
  in.mask = Tensor(kBool, {2, 70}).fill(1.0);
  expect_close(attend(GetParam(), in), plain);
}

TEST_P(BugReports, BugRow06_IntegerMasksAreConvertedByRuleOrRefused) {
  for (DType dtype : {kI32, kI64}) {
    Inputs in = index_inputs(kF32, {.batch = 2, .seq_q = 3, .seq_kv = 4});
    in.mask = Tensor(dtype, {2, 4}).fill({1, 1, 0, 0, 0, 0, 0, 1});
    expect_rows(attend(GetParam(), in),
                [](int64_t b, int64_t, int64_t) { return b == 0 ? 0.5 : 3.0; });
  }
}

TEST_P(BugReports, BugRow07_TrueMeansAttend) {
  Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 2});
  in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return j == 0 ? 1.0 : 0.0; });
  in.mask = Tensor(kBool, {1, 2}).fill({1, 0});
  expect_rows(attend(GetParam(), in), one);  // not 0
}

TEST_P(BugReports, BugRow09_FullyMaskedRows) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.seq_q = 8, .seq_kv = 8});
    const Answer plain = attend(GetParam(), in);
    in.mask = Tensor(kBool, {1, 1, 8, 8}).fill([](int64_t, int64_t, int64_t i, int64_t) {
      return i < 4 ? 1.0 : 0.0;
    });
    const Answer masked = attend(GetParam(), in);
    if (!plain.ran || !masked.ran) return;
    for (int64_t i = 0; i < 8; ++i) {
      if (i >= 4) {
        EXPECT_EQ(masked.lse.at(0, 0, i), -kInf);
      }
      for (int64_t d = 0; d < 8; ++d)
        EXPECT_NEAR(masked.out.at(0, i, 0, d), i < 4 ? plain.out.at(0, i, 0, d) : 0,
                    i < 4 ? 4 * relative_tolerance(dtype) : 0);
    }
  }
}

TEST_P(BugReports, BugRow10_NanBehindTheMaskDoesNotLeak) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.seq_q = 4, .seq_kv = 6});
    Inputs without = in;
    const auto skip = [](const Tensor& from) {
      return Tensor(from.view().dtype, {1, 5, 1, 8})
          .fill([&](int64_t, int64_t j, int64_t, int64_t d) {
            return from.at(0, j < 3 ? j : j + 1, 0, d);
          });
    };
    without.k = skip(in.k);
    without.v = skip(in.v);
    for (int64_t d = 0; d < 8; ++d) {
      in.k.set(kNaN, 0, 3, 0, d);
      in.v.set(kNaN, 0, 3, 0, d);
    }
    in.mask = Tensor(kBool, {1, 6}).fill({1, 1, 1, 0, 1, 1});
    expect_close(attend(GetParam(), in), attend(GetParam(), without));
  }
}

TEST_P(BugReports, BugRow11_KeyLengthThatIsNoMultipleOfEight) {
  for (int64_t keys : {700, 701}) {
    Inputs in = random_inputs(
        kBF16, {.batch = 2, .seq_q = 350, .seq_kv = keys, .head_dim = 256, .dim_v = 256});
    in.mask = Tensor(kBF16, {2, 1, keys}).fill([](int64_t b, int64_t, int64_t j, int64_t) {
      return (b + j) % 5 == 0 ? -kInf : 0.0;
    });
    expect_agrees(GetParam(), in);
  }
}

TEST_P(BugReports, BugRow12_ShortTextKeysAndSmallHeads) {
  for (DType dtype : kFloatTypes)
    expect_agrees(
        GetParam(),
        random_inputs(dtype,
                      {.seq_q = 4096, .seq_kv = 77, .heads_q = 1, .head_dim = 40, .dim_v = 40}));
}

TEST_P(BugReports, BugRow13_LastMaskAxisIsTheKeys) {
  Inputs in = index_inputs(kF32, {.seq_q = 4, .seq_kv = 3});
  in.mask = Tensor(kBool, {1, 3}).fill({0, 1, 1});
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 1.5; });
  in.mask = Tensor(kBool, {4, 1}).fill(1.0);
  EXPECT_FALSE(describe(in.tensors(), {}).has_value());
}

TEST_P(BugReports, BugRow14_TextPaddingInJointAttention) {
  // 64 text tokens, 12 valid, then 256 image tokens.
  Inputs in = random_inputs(kF32, {.batch = 1,
                                   .seq_q = 320,
                                   .seq_kv = 320,
                                   .heads_q = 2,
                                   .heads_kv = 2,
                                   .head_dim = 16,
                                   .dim_v = 16});
  Inputs dropped = in;
  const auto drop = [](const Tensor& from) {
    return Tensor(kF32, {1, 268, 2, 16}).fill([&](int64_t, int64_t j, int64_t h, int64_t d) {
      return from.at(0, j < 12 ? j : j + 52, h, d);
    });
  };
  dropped.k = drop(in.k);
  dropped.v = drop(in.v);
  in.mask = Tensor(kBool, {1, 320}).fill([](int64_t, int64_t j, int64_t, int64_t) {
    return j < 12 || j >= 64 ? 1.0 : 0.0;
  });
  expect_close(attend(GetParam(), in), attend(GetParam(), dropped));
}

TEST_P(BugReports, BugRow15_NoKeysAtAll) {
  const Answer answer = attend(GetParam(), random_inputs(kF16, {.seq_q = 5, .seq_kv = 0}));
  expect_rows(answer, [](int64_t, int64_t, int64_t) { return 0.0; });
  expect_lse(answer, [](int64_t, int64_t, int64_t) { return -kInf; });
  Inputs packed;
  packed.q = Tensor(kF16, {5, 1, 8}).random(1);
  packed.k = Tensor(kF16, {3, 1, 8}).random(2);
  packed.v = Tensor(kF16, {3, 1, 8}).random(3);
  packed.cu_seqlens_q = Tensor(kI32, {3}).fill({0, 2, 5});
  packed.cu_seqlens_kv = Tensor(kI32, {3}).fill({0, 0, 3});
  CallOptions options;
  options.input_layout = Layout::packed;
  const Answer two = attend(GetParam(), packed, options);
  if (!two.ran) return;
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(two.lse.at(0, i) == -kInf, i < 2);
    EXPECT_EQ(two.out.at(i, 0, 4) == 0, i < 2);
  }
}

TEST_P(BugReports, BugRow16_CausalIsBottomRight) {
  Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 4});
  in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return static_cast<double>(j + 1); });
  CallOptions options;
  options.is_causal = true;
  expect_rows(attend(GetParam(), in, options), [](int64_t, int64_t i, int64_t) {
    return i == 0 ? 2.0 : 2.5;  // not 1.0 and 1.5
  });
}

TEST_P(BugReports, BugRow17_PaddedKeysTakeNoWeightFromSmallLogits) {
  Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 4, .head_dim = 1});
  in.q.fill(1.0);
  in.k.fill(-20.0);
  in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return static_cast<double>(j + 1); });
  CallOptions options;
  options.scale = 1.0;
  expect_rows(attend(GetParam(), in, options),
              [](int64_t, int64_t, int64_t) { return 2.5; });  // not 5e-9
}

TEST_P(BugReports, BugRow18_TwoHundredKeys) {
  for (DType dtype : kFloatTypes)
    expect_agrees(GetParam(),
                  random_inputs(dtype, {.seq_q = 30, .seq_kv = 200, .head_dim = 64, .dim_v = 64}));
}

TEST_P(BugReports, BugRow20_PaddingDoesNotEnterTheSoftmax) {
  Inputs in = index_inputs(kF32, {.seq_q = 200, .seq_kv = 200});
  in.v.fill(1.0);
  expect_rows(attend(GetParam(), in), one);  // not 0.78125
}

TEST_P(BugReports, BugRow26_WideHeadsInAnotherMemoryOrder) {
  const Inputs in = random_inputs(kF32, {.batch = 1,
                                         .seq_q = 33,
                                         .seq_kv = 65,
                                         .heads_q = 3,
                                         .heads_kv = 3,
                                         .head_dim = 256,
                                         .dim_v = 256});
  Inputs view = in;
  const auto as_view = [](const Tensor& from, int64_t seq) {
    return Tensor(kF32, {1, seq, 3, 256}, {seq * 3 * 256, 256, seq * 256, 1})
        .fill([&](int64_t b, int64_t s, int64_t h, int64_t d) { return from.at(b, s, h, d); });
  };
  view.q = as_view(in.q, 33);
  view.k = as_view(in.k, 65);
  view.v = as_view(in.v, 65);
  expect_close(attend(GetParam(), view), attend(GetParam(), in));
}

TEST_P(BugReports, BugRow27_OutputIsContiguousForTransposedQueries) {
  Inputs in;
  in.q = Tensor(kF32, {2, 65, 3, 64}, {3 * 65 * 64, 64, 65 * 64, 1}).random(1);
  in.k = Tensor(kF32, {2, 65, 3, 64}, {3 * 65 * 64, 64, 65 * 64, 1}).random(2);
  in.v = Tensor(kF32, {2, 65, 3, 64}, {3 * 65 * 64, 64, 65 * 64, 1}).random(3);
  auto problem = describe(in.tensors(), {});
  ASSERT_TRUE(problem.has_value()) << problem.error().message;
  auto specs = output_spec(*problem);
  ASSERT_TRUE(specs.has_value());
  EXPECT_EQ(specs->out.shape, (std::vector<int64_t>{2, 65, 3, 64}));
  EXPECT_EQ(specs->out.strides, (std::vector<int64_t>{65 * 3 * 64, 3 * 64, 64, 1}));
  expect_agrees(GetParam(), in);
}

TEST_P(BugReports, BugRow29_HeadCountsThatDoNotDivideAreNamed) {
  for (const auto& [hq, hk] : {std::pair<int64_t, int64_t>(3, 2), {33, 2}}) {
    const Inputs in = random_inputs(kF32, {.seq_q = 2, .seq_kv = 2, .heads_q = hq, .heads_kv = hk});
    auto problem = describe(in.tensors(), {});
    ASSERT_FALSE(problem.has_value());
    EXPECT_NE(problem.error().message.find(std::to_string(hq)), std::string::npos);
    EXPECT_NE(problem.error().message.find(std::to_string(hk)), std::string::npos);
  }
}

TEST_P(BugReports, BugRow30_GroupedHeadsRepeatInterleaved) {
  const Inputs in =
      random_inputs(kF32, {.batch = 1, .seq_q = 20, .seq_kv = 30, .heads_q = 32, .heads_kv = 8});
  Inputs repeated = in;
  const auto repeat = [](const Tensor& from) {
    return Tensor(kF32, {1, 30, 32, 8}).fill([&](int64_t b, int64_t j, int64_t h, int64_t d) {
      return from.at(b, j, h / 4, d);
    });
  };
  repeated.k = repeat(in.k);
  repeated.v = repeat(in.v);
  expect_close(attend(GetParam(), in), attend(GetParam(), repeated));
}

// Workspace that is linear in the keys: a float32 copy of one head's K and V for every worker and
// as much again.
void expect_linear_workspace(const Target& target, const std::string& text) {
  SCOPED_TRACE(text);
  const Problem p = *parse_problem(text);
  const auto report = target.backend->resolve(target.name, p, target.spec(), target.context);
  if (report.support == SupportStatus::unsupported) GTEST_SKIP() << "refused";
  const int64_t copy = p.seq_kv * (p.head_dim + p.dim_v) * 4;
  EXPECT_LE(report.workspace_bytes,
            static_cast<size_t>(2 * copy * target.executor->workers() + (int64_t{1} << 20)));
  EXPECT_LT(static_cast<double>(report.workspace_bytes),
            0.1 * static_cast<double>(p.seq_q) * static_cast<double>(p.seq_kv));
}

TEST_P(BugReports, BugRow31_GroupedHeadsWithAMaskNeedNoScoreMatrix) {
  expect_linear_workspace(GetParam(), "bf16 b2 h32 s32768 d128 hk=4 mask=keys");
}

TEST_P(BugReports, BugRow40_LseIsNatural) {
  const Answer answer = attend(GetParam(), index_inputs(kF32, {.seq_q = 3, .seq_kv = 7}));
  expect_lse(answer, [](int64_t, int64_t, int64_t) { return 1.9459101090932196; });  // not 2.8074
}

TEST_P(BugReports, BugRow43_SumsOfEqualKeysDoNotOverflow) {
  Inputs in = index_inputs(kF16, {.seq_q = 2, .seq_kv = 4096});
  in.v.fill(100.0);
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 100.0; });
}

TEST_P(BugReports, BugRow44_SmallWeightsAreNotLost) {
  // One key at logit 0 and 4096 keys at -7, all values 1.
  Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 4097, .head_dim = 1});
  in.q.fill(1.0);
  in.k.fill([](int64_t, int64_t j, int64_t, int64_t) { return j == 0 ? 0.0 : -7.0; });
  in.v.fill(1.0);
  CallOptions options;
  options.scale = 1.0;
  expect_rows(attend(GetParam(), in, options), one);  // not 0.211
}

TEST_P(BugReports, BugRow45_ScaleComesFromTheLogicalHeadDim) {
  // q.k = sqrt(72) ln 3 gives weights 3 : 1 with the right scale.
  Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 2, .head_dim = 72});
  in.q.fill([](int64_t, int64_t, int64_t, int64_t d) { return d == 0 ? 1.0 : 0.0; });
  in.k.fill([](int64_t, int64_t j, int64_t, int64_t d) {
    return j == 1 && d == 0 ? std::sqrt(72.0) * std::log(3.0) : 0.0;
  });
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 0.75; });
}

TEST_P(BugReports, BugRow62_KeyPaddingCostsNoScoreMatrix) {
  expect_linear_workspace(GetParam(), "bf16 b1 h2 s51275 d64 mask=keys");
  expect_linear_workspace(GetParam(), "bf16 b1 h2 s51275 d64 kvlen=40000");
}

TEST_P(BugReports, BugRow63_PackedTotalOfAThousand) {
  Inputs in;
  in.q = Tensor(kBF16, {1000, 2, 32}).random(1);
  in.k = Tensor(kBF16, {1000, 2, 32}).random(2);
  in.v = Tensor(kBF16, {1000, 2, 32}).random(3);
  in.cu_seqlens_q = Tensor(kI32, {4}).fill({0, 301, 302, 1000});
  in.cu_seqlens_kv = Tensor(kI32, {4}).fill({0, 301, 302, 1000});
  CallOptions options;
  options.input_layout = Layout::packed;
  const Answer answer = attend(GetParam(), in, options);
  EXPECT_EQ(answer.out.view().shape[0], 1000);
  expect_agrees(GetParam(), in, options);
}

TEST_P(BugReports, BugRow69_LargeKeysStayFinite) {
  for (DType dtype : {kF16, kBF16}) {
    Inputs in = random_inputs(dtype, {.batch = 1,
                                      .seq_q = 40,
                                      .seq_kv = 70,
                                      .heads_q = 2,
                                      .heads_kv = 2,
                                      .head_dim = 128,
                                      .dim_v = 128});
    in.k.fill(
        [](int64_t, int64_t j, int64_t, int64_t d) { return (j + d) % 2 == 0 ? 300.0 : -300.0; });
    const Answer answer = attend(GetParam(), in);
    if (!answer.ran) return;
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t d = 0; d < 128; ++d) EXPECT_TRUE(std::isfinite(answer.out.at(0, i, 1, d)));
    expect_agrees(GetParam(), in);
  }
}

}  // namespace
}  // namespace fovea::contract
