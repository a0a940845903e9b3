#include "tools/fovea/baseline.hpp"

#include <gtest/gtest.h>

#include "src/backends/reference/attend.hpp"
#include "src/core/random_inputs.hpp"

namespace fovea::cli {
namespace {

double largest_difference(const std::string& text) {
  const Problem problem = parse_problem(text).value();
  const RandomInputs inputs = make_random_inputs(problem, {.poison = false}).value();
  MaterialisedSoftmax baseline(problem, inputs.tensors(), serial_executor());
  baseline.run();
  const auto oracle =
      backends::reference::compute_oracle(problem, inputs.tensors(), serial_executor()).value();
  double largest = 0;
  // The oracle's output is in the problem's layout, the baseline's always [B,Sq,Hq,Dv].
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t i = 0; i < problem.seq_q; ++i) {
      for (int64_t h = 0; h < problem.heads_q; ++h) {
        for (int64_t d = 0; d < problem.dim_v; ++d) {
          const int64_t ours = ((b * problem.seq_q + i) * problem.heads_q + h) * problem.dim_v + d;
          const int64_t theirs =
              problem.out_layout == Layout::bhsd
                  ? ((b * problem.heads_q + h) * problem.seq_q + i) * problem.dim_v + d
                  : ours;
          largest =
              std::max(largest, std::abs(double{baseline.output()[static_cast<size_t>(ours)]} -
                                         oracle.out[static_cast<size_t>(theirs)]));
        }
      }
    }
  }
  return largest;
}

TEST(MaterialisedSoftmax, AgreesWithTheOracle) {
  EXPECT_LT(largest_difference("f32 b2 h4 s37 d16 hk=2 sk=53 dv=8"), 1e-5);
  EXPECT_LT(largest_difference("f32 b1 h3 s20 d24 layout=bhsd"), 1e-5);
  EXPECT_LT(largest_difference("bf16 b1 h2 s33 d16"), 1e-5);
}

TEST(MaterialisedSoftmax, CoversOnlyPlainDenseProblems) {
  const auto covers = [](const char* text, int workers = 1) {
    return MaterialisedSoftmax::covers(parse_problem(text).value(), workers);
  };
  EXPECT_TRUE(covers("f32 b1 h1 s1024 d64"));
  EXPECT_FALSE(covers("f32 b1 h1 s1024 d64 mask=causal"));
  EXPECT_FALSE(covers("f32 b1 h1 s1024 d64 mask=keys"));
  EXPECT_FALSE(covers("f32 b1 h1 s1024 d64 window=3,3"));
  EXPECT_FALSE(covers("f32 b1 h1 s1024 d64 kvlen=5"));
  EXPECT_FALSE(covers("f32 b1 h1 s1024 d64 lse=1"));
  EXPECT_TRUE(covers("f32 b1 h1 s8192 d64", 1));
  EXPECT_FALSE(covers("f32 b1 h1 s8192 d64", 2));
}

}  // namespace
}  // namespace fovea::cli
