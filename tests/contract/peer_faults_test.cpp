// Faults found by reading other implementations, one test each, numbered as in the project's notes.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"
#include "tests/contract/merge.hpp"

namespace fovea::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

FOVEA_CONTRACT_SUITE(PeerFaults);

TEST_P(PeerFaults, F02_BooleanMaskIsNotABias) {
  Inputs in = index_inputs(kF32, {.seq_q = 1, .seq_kv = 2});
  in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return j == 0 ? 1.0 : 0.0; });
  in.mask = Tensor(kBool, {1, 1, 1, 2}).fill({1, 0});
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 1.0; });  // not 0.7311
}

TEST_P(PeerFaults, F03_CausalWithoutAMaskAndWithLse) {
  CallOptions options;
  options.is_causal = true;
  const Answer answer = attend(GetParam(), index_inputs(kF32, {.seq_q = 3, .seq_kv = 3}), options);
  expect_rows(answer, [](int64_t, int64_t i, int64_t) { return 0.5 * static_cast<double>(i); });
  expect_lse(answer,
             [](int64_t, int64_t i, int64_t) { return std::log(static_cast<double>(i + 1)); });
}

TEST_P(PeerFaults, F04_PerQueryMasksAreNotCollapsedToKeys) {
  for (int rank : {3, 4}) {
    Inputs in = index_inputs(kF32, {.seq_q = 2, .seq_kv = 2});
    in.v.fill([](int64_t, int64_t j, int64_t, int64_t) { return j == 0 ? 1.0 : 0.0; });
    in.mask = rank == 3 ? Tensor(kBool, {1, 2, 2}) : Tensor(kBool, {1, 1, 2, 2});
    in.mask.fill({1, 0, 0, 1});
    expect_rows(attend(GetParam(), in), [](int64_t, int64_t i, int64_t) {
      return i == 0 ? 1.0 : 0.0;  // not .5, .5
    });
  }
}

TEST_P(PeerFaults, F05_TwoDimensionsAreNeverAQueryMask) {
  // B = Sq = 2: key padding. [Sq, Skv] with another batch is an error that says what to pass.
  Inputs in = index_inputs(kF32, {.batch = 2, .seq_q = 2, .seq_kv = 3});
  in.mask = Tensor(kBool, {2, 3}).fill({1, 0, 0, 0, 0, 1});
  expect_rows(attend(GetParam(), in),
              [](int64_t b, int64_t, int64_t) { return b == 0 ? 0.0 : 2.0; });
  Inputs wrong = index_inputs(kF32, {.batch = 2, .seq_q = 4, .seq_kv = 3});
  wrong.mask = Tensor(kBool, {4, 3}).fill(1.0);
  auto problem = describe(wrong.tensors(), {});
  ASSERT_FALSE(problem.has_value());
  EXPECT_NE(problem.error().message.find("pass [1,1,4,3]"), std::string::npos)
      << problem.error().message;
}

TEST_P(PeerFaults, F07_MergingTwoEmptyShards) {
  Inputs in = random_inputs(kF32, {.batch = 1, .seq_q = 3, .seq_kv = 4});
  in.kv_lengths = Tensor(kI32, {1}).fill(0.0);
  const Answer empty = attend(GetParam(), in);
  const Merged merged = merge({empty, empty});
  if (!merged.complete) return;
  for (double value : merged.out) EXPECT_EQ(value, 0);
  for (double value : merged.lse) EXPECT_EQ(value, -kInf);
  expect_merged(merged, empty);
}

TEST_P(PeerFaults, F12_LseIsReturnedInFloat32) {
  // Shards with LSE 30.06 and 30.00: rounding them to bf16 would give equal weights.
  Inputs a = index_inputs(kBF16, {.seq_q = 1, .seq_kv = 1, .head_dim = 1});
  a.q.fill(1.0);
  a.k.fill(30.0);
  a.v.fill(1.0);
  a.mask = Tensor(kF32, {1, 1}).fill(0.0625);
  Inputs b = a;
  b.v = Tensor(kBF16, {1, 1, 1, 8}).fill(0.0);
  b.mask = Tensor(kF32, {1, 1}).fill(0.0);
  CallOptions options;
  options.scale = 1.0;
  const Merged merged = merge({attend(GetParam(), a, options), attend(GetParam(), b, options)});
  if (!merged.complete) return;
  EXPECT_NEAR(merged.out[0], 1 / (1 + std::exp(-0.0625)), 1e-3);  // not .5
}

TEST_P(PeerFaults, F19_MasksOfEveryItemInALargeBatch) {
  Inputs in =
      index_inputs(kF32, {.batch = 300, .seq_q = 2, .seq_kv = 9, .heads_q = 2, .heads_kv = 2});
  in.mask = Tensor(kBool, {300, 1, 2, 9}).fill([](int64_t b, int64_t, int64_t i, int64_t j) {
    return j == (b + 4 * i) % 9 ? 1.0 : 0.0;
  });
  expect_rows(attend(GetParam(), in),
              [](int64_t b, int64_t i, int64_t) { return static_cast<double>((b + 4 * i) % 9); });
  Inputs cross = index_inputs(kF32, {.batch = 2, .seq_q = 5, .seq_kv = 3});
  cross.mask = Tensor(kBool, {2, 1, 5, 3}).fill([](int64_t b, int64_t, int64_t i, int64_t j) {
    return j == (b + i) % 3 ? 1.0 : 0.0;
  });
  expect_rows(attend(GetParam(), cross),
              [](int64_t b, int64_t i, int64_t) { return static_cast<double>((b + i) % 3); });
}

TEST_P(PeerFaults, F20_LengthsThatNoTileFits) {
  for (int64_t rows : {1, 99, 100, 101})
    expect_agrees(
        GetParam(),
        random_inputs(kBF16, {.seq_q = rows, .seq_kv = rows, .head_dim = 64, .dim_v = 64}));
}

}  // namespace
}  // namespace fovea::contract
