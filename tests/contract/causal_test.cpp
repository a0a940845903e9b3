// Clauses 9 and 12: causal and window are bottom-right per item or document; packed documents.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

FOVEA_CONTRACT_SUITE(ContractCausal);

// Keys [first, last] of row i by the wording of the clause; empty when first > last.
std::pair<int64_t, int64_t> range(int64_t i, int64_t n, int64_t m, int64_t left, int64_t right) {
  const int64_t diagonal = i + (n - m);
  const int64_t first = left < 0 ? 0 : std::max<int64_t>(0, diagonal - left);
  const int64_t last = right < 0 ? n - 1 : std::min(n - 1, diagonal + right);
  return {first, last};
}

double mean(std::pair<int64_t, int64_t> keys) {
  return keys.first > keys.second ? 0 : 0.5 * static_cast<double>(keys.first + keys.second);
}

double log_count(std::pair<int64_t, int64_t> keys) {
  return keys.first > keys.second ? -kInf
                                  : std::log(static_cast<double>(keys.second - keys.first + 1));
}

TEST_P(ContractCausal, BottomRightForEveryPairOfLengths) {
  for (DType dtype : kFloatTypes)
    for (int64_t m : {1, 2, 5, 63, 64, 65, 130})
      for (int64_t n : {1, 2, 5, 63, 64, 65, 130}) {
        SCOPED_TRACE(std::to_string(m) + " rows, " + std::to_string(n) + " keys");
        CallOptions options;
        options.is_causal = true;
        const Answer answer =
            attend(GetParam(), index_inputs(dtype, {.seq_q = m, .seq_kv = n}), options);
        expect_rows(answer,
                    [&](int64_t, int64_t i, int64_t) { return mean(range(i, n, m, -1, 0)); });
        expect_lse(answer,
                   [&](int64_t, int64_t i, int64_t) { return log_count(range(i, n, m, -1, 0)); });
      }
}

TEST_P(ContractCausal, FirstRowsSeeNothingWhenThereAreMoreRowsThanKeys) {
  CallOptions options;
  options.is_causal = true;
  const Answer answer =
      attend(GetParam(), random_inputs(kF32, {.seq_q = 100, .seq_kv = 70}), options);
  if (!answer.ran) return;
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(answer.lse.at(0, 0, i) == -kInf, i < 30) << "row " << i;
}

TEST_P(ContractCausal, WindowsOnBothSides) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>(70, 70), {20, 140}, {140, 20}})
    for (int64_t left :
         {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{17}, int64_t{64}, int64_t{500}, kHuge})
      for (int64_t right :
           {int64_t{-1}, int64_t{0}, int64_t{3}, int64_t{64}, int64_t{500}, kHuge}) {
        SCOPED_TRACE(std::to_string(left) + "," + std::to_string(right));
        CallOptions options;
        options.window = {left, right};
        const Answer answer =
            attend(GetParam(), index_inputs(kF32, {.seq_q = m, .seq_kv = n}), options);
        const auto keys = [&, m = m, n = n](int64_t i) {
          return range(i, n, m, left == kHuge ? -1 : left, right == kHuge ? -1 : right);
        };
        expect_rows(answer, [&](int64_t, int64_t i, int64_t) { return mean(keys(i)); });
        expect_lse(answer, [&](int64_t, int64_t i, int64_t) { return log_count(keys(i)); });
      }
}

TEST_P(ContractCausal, DiagonalFollowsTheLengthOfEachItem) {
  Inputs in = index_inputs(kF32, {.batch = 4, .seq_q = 6, .seq_kv = 12});
  in.kv_lengths = Tensor(kI64, {4}).fill({12, 6, 3, 0});
  CallOptions options;
  options.is_causal = true;
  options.window = {2, 0};
  const int64_t lengths[] = {12, 6, 3, 0};
  const Answer answer = attend(GetParam(), in, options);
  expect_rows(answer,
              [&](int64_t b, int64_t i, int64_t) { return mean(range(i, lengths[b], 6, 2, 0)); });
  expect_lse(answer, [&](int64_t b, int64_t i, int64_t) {
    return log_count(range(i, lengths[b], 6, 2, 0));
  });
}

TEST_P(ContractCausal, MaskTensorDoesNotMoveTheDiagonal) {
  Inputs in = index_inputs(kF32, {.seq_q = 4, .seq_kv = 6});
  in.mask = Tensor(kBool, {1, 6}).fill({1, 1, 1, 0, 0, 0});
  CallOptions options;
  options.is_causal = true;
  expect_rows(attend(GetParam(), in, options), [](int64_t, int64_t, int64_t) { return 1.0; });
}

TEST_P(ContractCausal, LookingAheadContradictsCausal) {
  CallOptions options;
  options.is_causal = true;
  options.window = {3, 2};
  const Inputs in = index_inputs(kF32, {.seq_q = 4, .seq_kv = 4});
  auto problem = describe(in.tensors(), options);
  ASSERT_FALSE(problem.has_value());
  EXPECT_NE(problem.error().message.find("causal"), std::string::npos) << problem.error().message;
}

// Documents of `q` and `kv` tokens; values count from 0 inside each document.
Inputs packed_inputs(DType dtype, const std::vector<std::pair<int64_t, int64_t>>& documents,
                     bool random) {
  Inputs in;
  const auto count = static_cast<int64_t>(documents.size());
  in.cu_seqlens_q = Tensor(kI32, {count + 1}).fill(0.0);
  in.cu_seqlens_kv = Tensor(kI32, {count + 1}).fill(0.0);
  int64_t q = 0;
  int64_t kv = 0;
  std::vector<int64_t> index;
  for (int64_t n = 0; n < count; ++n) {
    const auto [rows, keys] = documents[static_cast<size_t>(n)];
    q += rows;
    kv += keys;
    for (int64_t j = 0; j < keys; ++j) index.push_back(j);
    in.cu_seqlens_q.set(static_cast<double>(q), n + 1);
    in.cu_seqlens_kv.set(static_cast<double>(kv), n + 1);
  }
  in.q = Tensor(dtype, {q, 2, 8});
  in.k = Tensor(dtype, {kv, 2, 8});
  in.v = Tensor(dtype, {kv, 2, 8});
  if (random) {
    in.q.random(1);
    in.k.random(2);
    in.v.random(3);
  } else {
    in.q.fill(0.0);
    in.k.fill(0.0);
    in.v.fill([&](int64_t j, int64_t, int64_t, int64_t) {
      return static_cast<double>(index[static_cast<size_t>(j)]);
    });
  }
  return in;
}

FOVEA_CONTRACT_SUITE(ContractPacked);

TEST_P(ContractPacked, EveryDocumentSeesOnlyItself) {
  const std::vector<std::pair<int64_t, int64_t>> documents = {{3, 5}, {0, 0}, {1, 70}, {65, 1},
                                                              {0, 9}, {4, 0}, {2, 2}};
  std::vector<std::pair<int64_t, int64_t>> row_of;  // (row in its document, keys)
  std::vector<int64_t> rows_in;
  for (const auto& [rows, keys] : documents)
    for (int64_t i = 0; i < rows; ++i) {
      row_of.emplace_back(i, keys);
      rows_in.push_back(rows);
    }
  for (DType dtype : kFloatTypes)
    for (bool causal : {false, true}) {
      CallOptions options;
      options.input_layout = Layout::packed;
      options.is_causal = causal;
      const Answer answer = attend(GetParam(), packed_inputs(dtype, documents, false), options);
      const auto keys = [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        return range(row_of[at].first, row_of[at].second, rows_in[at], -1, causal ? 0 : -1);
      };
      expect_rows(answer, [&](int64_t, int64_t i, int64_t) { return mean(keys(i)); });
      expect_lse(answer, [&](int64_t, int64_t i, int64_t) { return log_count(keys(i)); });
    }
}

TEST_P(ContractPacked, EqualsOneCallPerDocument) {
  const std::vector<std::pair<int64_t, int64_t>> documents = {{40, 33}, {7, 90}, {1, 1}};
  CallOptions options;
  options.input_layout = Layout::packed;
  const Inputs in = packed_inputs(kF32, documents, true);
  const Answer packed = attend(GetParam(), in, options);
  if (!packed.ran) return;
  int64_t q = 0;
  int64_t kv = 0;
  for (const auto& [rows, keys] : documents) {
    Inputs one;
    const auto cut = [](const Tensor& from, int64_t begin, int64_t size) {
      return Tensor(kF32, {1, size, 2, 8}).fill([&](int64_t, int64_t i, int64_t h, int64_t d) {
        return from.at(begin + i, h, d);
      });
    };
    one.q = cut(in.q, q, rows);
    one.k = cut(in.k, kv, keys);
    one.v = cut(in.v, kv, keys);
    const Answer alone = attend(GetParam(), one);
    if (!alone.ran) return;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < 2; ++h) {
        EXPECT_NEAR(packed.lse.at(h, q + i), alone.lse.at(0, h, i), 2e-5);
        for (int64_t d = 0; d < 8; ++d)
          EXPECT_NEAR(packed.out.at(q + i, h, d), alone.out.at(0, i, h, d), 1e-5);
      }
    q += rows;
    kv += keys;
  }
}

TEST_P(ContractPacked, BadCumulativeLengthsAreErrors) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  const std::vector<std::pair<int64_t, int64_t>> documents = {{3, 5}, {4, 6}};
  CallOptions options;
  options.input_layout = Layout::packed;
  const Inputs good = packed_inputs(kF32, documents, true);
  auto problem = describe(good.tensors(), options);
  ASSERT_TRUE(problem.has_value()) << problem.error().message;
  const auto ready = plan(GetParam(), *problem);
  if (!ready) return;
  struct Fault {
    int64_t at;
    double value;
  };
  for (const Fault& fault : {Fault{0, 1}, Fault{1, 12}, Fault{2, 10}, Fault{2, 6}, Fault{1, -1}}) {
    Inputs bad = packed_inputs(kF32, documents, true);
    bad.cu_seqlens_kv.set(fault.value, fault.at);
    AttentionTensors tensors = bad.tensors();
    const Tensor out(kF32, {7, 2, 8});
    tensors.out = out.view();
    const uint64_t before = out.hash();
    const Status status = GetParam().launcher->launch(*ready, tensors);
    ASSERT_FALSE(status.has_value()) << fault.at << ' ' << fault.value;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_value);
    EXPECT_NE(status.error().message.find("cu_seqlens_kv"), std::string::npos)
        << status.error().message;
    EXPECT_EQ(out.hash(), before);
  }
}

TEST_P(ContractPacked, TakesNoMaskTensor) {
  Inputs in = packed_inputs(kF32, {{3, 5}}, true);
  in.mask = Tensor(kBool, {1, 5}).fill(1.0);
  CallOptions options;
  options.input_layout = Layout::packed;
  EXPECT_FALSE(describe(in.tensors(), options).has_value());
}

}  // namespace
}  // namespace fovea::contract
