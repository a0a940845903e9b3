// RMSNorm and rotary embedding on the CPU: closed forms, both pairings, both norms, refusals.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fovea/tensor_ops.hpp"

namespace fovea {
namespace {

std::string message(const Status& status) {
  return status ? std::string() : status.error().message;
}

TEST(NormRope, NormOverAHeadAndOverAToken) {
  // One token, heads (3, 4) and (0, 0).
  std::array<float, 4> x{3, 4, 0, 0}, y{}, weight{1, 2, 3, 4};
  NormRope what;
  what.epsilon = 0.5;
  what.weight = make_view(weight.data(), kF32, {2});
  const TensorView in = make_view(x.data(), kF32, {1, 1, 2, 2});
  const TensorView out = make_view(y.data(), kF32, {1, 1, 2, 2});
  ASSERT_TRUE(norm_rope(in, what, out).has_value());
  const float head = 1 / std::sqrt(12.5f + 0.5f), token = 1 / std::sqrt(6.25f + 0.5f);
  EXPECT_FLOAT_EQ(y[0], 3 * head);
  EXPECT_FLOAT_EQ(y[1], 8 * head);
  EXPECT_EQ(y[2], 0);
  what.norm = NormAxis::token;
  what.weight = make_view(weight.data(), kF32, {4});
  ASSERT_TRUE(norm_rope(in, what, out).has_value());
  EXPECT_FLOAT_EQ(y[0], 3 * token);
  EXPECT_FLOAT_EQ(y[1], 8 * token);
}

TEST(NormRope, AQuarterTurnMovesPairs) {
  std::array<float, 6> x{1, 2, 3, 4, 5, 6};  // the last two columns are not rotated
  std::array<float, 2> cos{0, 1}, sin{1, 0};
  NormRope what;
  what.cos = make_view(cos.data(), kF32, {1, 2});
  what.sin = make_view(sin.data(), kF32, {1, 2});
  std::array<float, 6> y{};
  const TensorView in = make_view(x.data(), kF32, {1, 1, 1, 6});
  const TensorView out = make_view(y.data(), kF32, {1, 1, 1, 6});
  ASSERT_TRUE(norm_rope(in, what, out).has_value());
  EXPECT_EQ(y, (std::array<float, 6>{-2, 1, 3, 4, 5, 6}));
  what.pairs = RotaryPairs::half;
  ASSERT_TRUE(norm_rope(in, what, out).has_value());
  EXPECT_EQ(y, (std::array<float, 6>{-3, 2, 1, 4, 5, 6}));
  ASSERT_TRUE(norm_rope(in, what, in).has_value());  // in place
  EXPECT_EQ(x, y);
}

TEST(NormRope, AnglesFollowTheTokenAndTheBatchItem) {
  // [B,H,S,D] = [2,1,2,2]: token s of item b turns by its own quarter.
  std::array<float, 8> x{1, 0, 1, 0, 1, 0, 1, 0}, y{};
  std::array<float, 4> cos{1, 0, -1, 0}, sin{0, 1, 0, -1};
  NormRope what;
  what.cos = make_view(cos.data(), kF32, {2, 2, 1});
  what.sin = make_view(sin.data(), kF32, {2, 2, 1});
  ASSERT_TRUE(norm_rope(make_view(x.data(), kF32, {2, 1, 2, 2}), what,
                        make_view(y.data(), kF32, {2, 1, 2, 2}), Layout::bhsd)
                  .has_value());
  EXPECT_EQ(y, (std::array<float, 8>{1, 0, 0, 1, -1, 0, 0, -1}));
}

TEST(NormRope, RefusalsNameTheTensor) {
  std::array<float, 4> x{}, y{}, table{};
  const TensorView in = make_view(x.data(), kF32, {1, 1, 1, 4});
  const TensorView out = make_view(y.data(), kF32, {1, 1, 1, 4});
  NormRope what;
  what.weight = make_view(table.data(), kF32, {3});
  EXPECT_NE(message(norm_rope(in, what, out)).find("weight has to be contiguous with 4"),
            std::string::npos);
  what = {};
  what.cos = make_view(table.data(), kF32, {1, 2});
  EXPECT_NE(message(norm_rope(in, what, out)).find("cos and sin"), std::string::npos);
  what.sin = make_view(table.data(), kF32, {1, 3});
  EXPECT_NE(message(norm_rope(in, what, out)).find("sin rotates more columns"), std::string::npos);
  what.sin = make_view(table.data(), kF32, {2, 2});
  EXPECT_NE(message(norm_rope(in, what, out)).find("sin has not the length of x"),
            std::string::npos);
  EXPECT_NE(message(norm_rope(in, {}, make_view(x.data() + 1, kF32, {1, 1, 1, 3}))).find("out"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea
