#include "src/backends/reference/agreement.hpp"

#include <gtest/gtest.h>

#include "fovea/executor.hpp"
#include "src/core/element.hpp"
#include "src/core/random_inputs.hpp"

namespace fovea::backends::reference {
namespace {

class ReferenceAgreement : public testing::Test {
 protected:
  // Inputs, the oracle's answer and outputs that hold exactly that.
  void make(const char* text) {
    problem_ = *parse_problem(text);
    inputs_ = std::move(make_random_inputs(problem_)).value();
    oracle_ = std::move(compute_oracle(problem_, inputs_.tensors(), serial_executor())).value();
    const AttentionTensors& t = inputs_.tensors();
    for (size_t i = 0; i < oracle_.out.size(); ++i)
      store_element(t.out.data, problem_.out_dtype, static_cast<int64_t>(i), oracle_.out[i]);
    for (size_t i = 0; problem_.lse && i < oracle_.lse.size(); ++i)
      store_element(t.lse.data, kF32, static_cast<int64_t>(i), oracle_.lse[i]);
  }
  Agreement judge() const {
    return compare_to_oracle(problem_, inputs_.tensors(), oracle_, DataKind::random);
  }

  Problem problem_;
  RandomInputs inputs_;
  Oracle oracle_;
};

TEST_F(ReferenceAgreement, RoundedOraclePasses) {
  for (const char* text : {"f32 b2 h2 s9 d8 lse=1", "bf16 b2 h2 s9 d8 outlayout=bhsd lse=1",
                           "f16 b1 h2 s9 d8 layout=packed docs=4:4,5:5 lse=1", "f32 b1 h1 s9 d8"}) {
    make(text);
    EXPECT_TRUE(judge().pass) << text;
    EXPECT_EQ(judge().out.compared, static_cast<int64_t>(oracle_.out.size()));
  }
}

TEST_F(ReferenceAgreement, AnyWrongValueFails) {
  make("f32 b2 h2 s9 d8 lse=1");
  static_cast<float*>(inputs_.tensors().out.data)[77] += 1e-3f;
  EXPECT_FALSE(judge().pass);
  make("f32 b2 h2 s9 d8 lse=1");
  static_cast<float*>(inputs_.tensors().lse.data)[35] += 2e-5f;
  EXPECT_FALSE(judge().pass);
}

TEST_F(ReferenceAgreement, DeepRowsAreLeftOut) {
  make("f32 b1 h1 s2 d4 sk=3 mask=bias lse=1");
  auto* bias = static_cast<float*>(inputs_.tensors().mask.data);
  for (int j = 0; j < 3; ++j) bias[3 + j] = -1e30f;
  oracle_ = std::move(compute_oracle(problem_, inputs_.tensors(), serial_executor())).value();
  for (int64_t d = 4; d < 8; ++d) store_element(inputs_.tensors().out.data, kF32, d, 1e6);
  const Agreement agreement = judge();
  EXPECT_EQ(agreement.rows_left_out, 1);
  EXPECT_TRUE(agreement.pass);
}

TEST_F(ReferenceAgreement, SmallProblemsAreComparedWhole) {
  for (const char* text : {"f32 b2 h3 s9 d8 lse=1", "bf16 b2 h2 s9 d8 outlayout=bhsd lse=1",
                           "f16 b1 h2 s19 d8 layout=packed docs=4:4,15:15 lse=1"}) {
    SCOPED_TRACE(text);
    make(text);
    const auto whole =
        agree_with_oracle(problem_, inputs_.tensors(), serial_executor(), DataKind::random, 1e9);
    ASSERT_TRUE(whole.has_value());
    EXPECT_TRUE(whole->pass);
    EXPECT_EQ(whole->rows, static_cast<int64_t>(oracle_.lse.size()));
    EXPECT_EQ(whole->out.compared, judge().out.compared);
    EXPECT_DOUBLE_EQ(whole->tolerance.rel_l2, judge().tolerance.rel_l2);
  }
}

TEST_F(ReferenceAgreement, LargeProblemsAreSampledInEveryPart) {
  make("f32 b2 h8 s400 d8 sk=16 lse=1");
  const auto sample = [&] {
    return agree_with_oracle(problem_, inputs_.tensors(), serial_executor(), DataKind::random,
                             flop_count(problem_) / 10)
        .value();
  };
  const Agreement agreement = sample();
  EXPECT_TRUE(agreement.pass);
  EXPECT_NEAR(static_cast<double>(agreement.rows), 640, 8);
  // The very last row is always one of them; a head that is wrong as a whole is always met.
  auto* out = static_cast<float*>(inputs_.tensors().out.data);
  out[oracle_.out.size() - 1] += 1;
  EXPECT_FALSE(sample().pass);
  for (int64_t head = 0; head < 8; ++head) {
    make("f32 b2 h8 s400 d8 sk=16 lse=1");
    out = static_cast<float*>(inputs_.tensors().out.data);
    for (int64_t row = 0; row < 400; ++row) out[(row * 8 + head) * 8] += 1;
    EXPECT_FALSE(sample().pass) << head;
  }
}

}  // namespace
}  // namespace fovea::backends::reference
