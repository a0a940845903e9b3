#include "src/core/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Compare, Figures) {
  std::vector<float> got = {3, 4, 0};
  const Comparison c = compare(make_view(got.data(), kF32, {3}), std::vector<double>{3, 3.5, 1});
  EXPECT_EQ(c.compared, 3);
  EXPECT_DOUBLE_EQ(c.max_abs, 1);
  EXPECT_DOUBLE_EQ(c.rel_l1, 1.5 / 7.5);
  EXPECT_DOUBLE_EQ(c.rel_l2, std::sqrt(1.25 / 22.25));
  EXPECT_DOUBLE_EQ(c.cosine, 23 / (5 * std::sqrt(22.25)));
  EXPECT_EQ(c.nonfinite_mismatches, 0);
}

TEST(Compare, NonFinitePositionsMustAgree) {
  std::vector<float> got = {kNaN, kInf, -kInf, kNaN, 1, kInf, 2};
  const std::vector<double> expected = {kNaN, kInf, -kInf, 1, kNaN, -kInf, 2};
  const Comparison c = compare(make_view(got.data(), kF32, {7}), expected);
  EXPECT_EQ(c.nonfinite_mismatches, 3);
  EXPECT_EQ(c.compared, 1);
  EXPECT_EQ(c.rel_l2, 0);
}

TEST(Compare, ZeroReferenceIsAbsolute) {
  std::vector<float> got = {0, 0.25f};
  const Comparison c = compare(make_view(got.data(), kF32, {2}), std::vector<double>{0, 0});
  EXPECT_EQ(c.rel_l2, 0.25);
  EXPECT_EQ(c.rel_l1, 0.25);
  EXPECT_EQ(c.cosine, 0);
  got[1] = 0;
  EXPECT_EQ(compare(make_view(got.data(), kF32, {2}), std::vector<double>{0, 0}).cosine, 1);
}

TEST(Compare, NothingToCompare) {
  const Comparison c = compare(make_view(nullptr, kF32, {0, 4}), std::vector<double>{});
  EXPECT_EQ(c.compared, 0);
  EXPECT_EQ(c.rel_l2, 0);
  EXPECT_EQ(c.cosine, 1);
}

TEST(Compare, StridesAndTypesMayDiffer) {
  std::vector<float> got = {1, 3, 2, 4};
  TensorView transposed = make_view(got.data(), kF32, {2, 2});
  transposed.stride = {1, 2};
  std::vector<double> expected = {1, 2, 3, 4};
  const Comparison c = compare(transposed, make_view(expected.data(), kF64, {2, 2}));
  EXPECT_EQ(c.compared, 4);
  EXPECT_EQ(c.max_abs, 0);
}

TEST(Compare, VisitsInRowMajorOrder) {
  TensorView view = make_view(nullptr, kF32, {2, 1, 3});
  view.stride = {100, 7, 2};
  std::vector<int64_t> offsets;
  for_each_element(view, [&](int64_t position, int64_t offset) {
    EXPECT_EQ(position, static_cast<int64_t>(offsets.size()));
    offsets.push_back(offset);
  });
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 2, 4, 100, 102, 104}));
}

}  // namespace
}  // namespace fovea
