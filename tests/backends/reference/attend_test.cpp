// The oracle against the textbook: a softmax over a full score matrix in long double.
#include "src/backends/reference/attend.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fovea/executor.hpp"
#include "src/core/element.hpp"
#include "src/core/random_inputs.hpp"

namespace fovea::backends::reference {
namespace {

double at(const TensorView& t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return load_element(t.data, t.dtype,
                      a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

struct Row4 {
  std::vector<double> out;
  double lse;
};

// bshd, 4-D mask with all axes or none.
Row4 textbook(const Problem& p, const AttentionTensors& t, int64_t b, int64_t h, int64_t i) {
  const int64_t kv_head = h / (p.heads_q / p.heads_kv);
  const int64_t n = p.has_kv_lengths ? static_cast<const int32_t*>(t.kv_lengths.data)[b] : p.seq_kv;
  std::vector<long double> weights(static_cast<size_t>(p.seq_kv), 0);
  long double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p.causal && j > i + n - p.seq_q) continue;
    if (p.window.left >= 0 && j < i + n - p.seq_q - p.window.left) continue;
    if (p.window.right >= 0 && j > i + n - p.seq_q + p.window.right) continue;
    long double score = 0;
    for (int64_t d = 0; d < p.head_dim; ++d)
      score += static_cast<long double>(at(t.q, b, i, h, d)) * at(t.k, b, j, kv_head, d);
    score *= p.effective_scale();
    if (t.mask.present()) {
      const double m = at(t.mask, b, h, i, j);
      if (p.mask.kind == MaskKind::boolean && m == 0) continue;
      if (p.mask.kind == MaskKind::bias) score += m;
    }
    weights[static_cast<size_t>(j)] = std::exp(score);
    sum += weights[static_cast<size_t>(j)];
  }
  Row4 row{std::vector<double>(static_cast<size_t>(p.dim_v), 0),
           static_cast<double>(std::log(sum))};
  for (int64_t d = 0; sum > 0 && d < p.dim_v; ++d) {
    long double value = 0;
    for (int64_t j = 0; j < n; ++j)
      if (weights[static_cast<size_t>(j)] > 0)
        value += weights[static_cast<size_t>(j)] * at(t.v, b, j, kv_head, d);
    row.out[static_cast<size_t>(d)] = static_cast<double>(value / sum);
  }
  return row;
}

TEST(ReferenceAttend, IsTheTextbookFormula) {
  for (const char* text :
       {"f32 b2 h4 s13 d7 hk=2 sk=29 dv=5", "bf16 b2 h2 s17 d16 mask=bool maskdims=bhq",
        "f16 b1 h2 s9 d3 sk=30 mask=bias maskdims=bhq", "f32 b3 h1 s11 d8 mask=causal kvlen=0,5,11",
        "f32 b2 h2 s20 d8 sk=12 mask=causal", "bf16 b1 h3 s25 d8 window=4,2",
        "f32 b2 h2 s20 d8 sk=40 mask=causal+bool maskdims=bhq window=6,0 kvlen=33,40"}) {
    SCOPED_TRACE(text);
    Problem p = *parse_problem(text);
    auto inputs = make_random_inputs(p);
    ASSERT_TRUE(inputs.has_value());
    const AttentionTensors& t = inputs->tensors();
    auto oracle = compute_oracle(p, t, serial_executor());
    ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
    Row row;
    for (row.batch = 0; row.batch < p.batch; ++row.batch)
      for (row.head = 0; row.head < p.heads_q; ++row.head)
        for (row.index = 0; row.index < p.seq_q; ++row.index) {
          const Row4 expected = textbook(p, t, row.batch, row.head, row.index);
          const auto lse = static_cast<size_t>(lse_offset(p, row));
          if (std::isinf(expected.lse)) {
            EXPECT_EQ(oracle->lse[lse], expected.lse);
          } else {
            EXPECT_NEAR(oracle->lse[lse], expected.lse, 1e-13);
          }
          const auto out = static_cast<size_t>(out_offset(p, row));
          for (size_t d = 0; d < static_cast<size_t>(p.dim_v); ++d)
            EXPECT_NEAR(oracle->out[out + d], expected.out[d], 1e-13);
        }
  }
}

TEST(ReferenceAttend, MagnitudeIsTheLargestVisibleScore) {
  const Problem p = *parse_problem("f32 b1 h1 s2 d1 sk=3 mask=bias scale=2");
  auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  const AttentionTensors& t = inputs->tensors();
  const auto fill = [](const TensorView& view, std::vector<float> values) {
    std::copy(values.begin(), values.end(), static_cast<float*>(view.data));
  };
  const float inf = std::numeric_limits<float>::infinity();
  fill(t.q, {1, -1});
  fill(t.k, {3, 40, 5});
  fill(t.mask, {0, -inf, -20, -2e6f, -inf, -3e6f});
  auto oracle = compute_oracle(p, t, serial_executor());
  ASSERT_TRUE(oracle.has_value());
  EXPECT_EQ(oracle->magnitude, 10);  // 2 * 5 - 20; the second row is deep
  EXPECT_EQ(oracle->deep_bias, (std::vector<uint8_t>{0, 1}));
}

TEST(ReferenceAttend, RefusesSparsePatternsAndWrongTensors) {
  Problem p = *parse_problem("f32 b1 h1 s2 d4");
  auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionTensors t = inputs->tensors();
  t.k.shape[1] = 1;
  EXPECT_FALSE(compute_oracle(p, t, serial_executor()).has_value());
  p.sparse = SparsePattern{"radial", {}};
  auto refused = compute_oracle(p, inputs->tensors(), serial_executor());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(ReferenceAttend, ScratchIsLinearInTheKeys) {
  const auto bytes = [](const char* text) { return scratch_bytes(*parse_problem(text)); };
  EXPECT_EQ(bytes("f32 b1 h1 s10 d64 sk=1000"), bytes("f32 b9 h8 s100000 d64 hk=1 sk=1000"));
  EXPECT_LT(bytes("f32 b1 h1 s75600 d128"), size_t{6} << 20);
}

}  // namespace
}  // namespace fovea::backends::reference
