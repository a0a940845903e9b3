// Merging by LSE on the CPU: closed forms, -inf, layouts, refusals.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/tensor_ops.hpp"
#include "src/core/element.hpp"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// out [1,2,1,2], lse [1,1,2].
struct Part {
  std::array<float, 4> out;
  std::array<float, 2> lse;
  PartialAttention view() {
    return {make_view(out.data(), kF32, {1, 2, 1, 2}), make_view(lse.data(), kF32, {1, 1, 2})};
  }
};

TEST(MergePartials, WeightsByTheSumsOfTheParts) {
  // Sums 1 and 3: weights 1/4 and 3/4.
  Part a{{1, 2, 5, 6}, {0, std::log(2.f)}}, b{{5, 6, 7, 8}, {std::log(3.f), std::log(2.f)}};
  Part merged{{kNan, kNan, kNan, kNan}, {kNan, kNan}};
  const PartialAttention parts[] = {a.view(), b.view()}, to = merged.view();
  ASSERT_TRUE(merge_partials(parts, to.out, to.lse).has_value());
  EXPECT_NEAR(merged.out[0], 4, 1e-6);
  EXPECT_NEAR(merged.out[1], 5, 1e-6);
  EXPECT_NEAR(merged.out[2], 6, 1e-6);
  EXPECT_NEAR(merged.out[3], 7, 1e-6);
  EXPECT_NEAR(merged.lse[0], std::log(4.f), 1e-6);
  EXPECT_NEAR(merged.lse[1], std::log(4.f), 1e-6);
}

TEST(MergePartials, APartThatSawNothingIsLeftOutWhateverItHolds) {
  Part a{{kNan, kInf, kNan, kNan}, {-kInf, -kInf}}, b{{5, 6, kNan, kNan}, {-700, -kInf}};
  Part merged{{kNan, kNan, kNan, kNan}, {kNan, kNan}};
  const PartialAttention parts[] = {a.view(), b.view()}, to = merged.view();
  ASSERT_TRUE(merge_partials(parts, to.out, to.lse).has_value());
  EXPECT_EQ(merged.out, (std::array<float, 4>{5, 6, 0, 0}));
  EXPECT_EQ(merged.lse, (std::array<float, 2>{-700, -kInf}));
}

TEST(MergePartials, LargeAndSmallLseDoNotOverflow) {
  Part a{{1, 1, 1, 1}, {1e4f, -1e4f}}, b{{3, 3, 3, 3}, {1e4f, 1e4f}},
      c{{8, 8, 8, 8}, {-1e4f, -1e4f}};
  Part merged{};
  const PartialAttention parts[] = {a.view(), b.view(), c.view()}, to = merged.view();
  ASSERT_TRUE(merge_partials(parts, to.out, to.lse).has_value());
  EXPECT_EQ(merged.out, (std::array<float, 4>{2, 2, 3, 3}));
  EXPECT_NEAR(merged.lse[0], 1e4 + std::log(2.0), 1e-3);
  EXPECT_EQ(merged.lse[1], 1e4f);
}

TEST(MergePartials, OutputMayReplaceAPart) {
  Part a{{1, 2, 3, 4}, {0, 0}}, b{{3, 4, 5, 6}, {0, 0}};
  std::array<float, 2> lse{};
  const PartialAttention parts[] = {a.view(), b.view()};
  ASSERT_TRUE(
      merge_partials(parts, parts[0].out, make_view(lse.data(), kF32, {1, 1, 2})).has_value());
  EXPECT_EQ(a.out, (std::array<float, 4>{2, 3, 4, 5}));
}

TEST(MergePartials, LayoutsAndTypes) {
  // [B,H,S,D] = [1,2,1,1] of bf16 to f32; LSE [1,2,1].
  std::array<uint16_t, 2> a{float_to_bf16(2), float_to_bf16(4)};
  std::array<uint16_t, 2> b{float_to_bf16(4), float_to_bf16(8)};
  std::array<float, 2> lse{0, 0}, out{}, merged{};
  const TensorView l = make_view(lse.data(), kF32, {1, 2, 1});
  const PartialAttention parts[] = {{make_view(a.data(), kBF16, {1, 2, 1, 1}), l},
                                    {make_view(b.data(), kBF16, {1, 2, 1, 1}), l}};
  ASSERT_TRUE(merge_partials(parts, make_view(out.data(), kF32, {1, 2, 1, 1}),
                             make_view(merged.data(), kF32, {1, 2, 1}), Layout::bhsd)
                  .has_value());
  EXPECT_EQ(out, (std::array<float, 2>{3, 6}));
  // Packed [T,H,D] = [2,1,1], LSE [1,2].
  const PartialAttention packed[] = {
      {make_view(a.data(), kBF16, {2, 1, 1}), make_view(lse.data(), kF32, {1, 2})}};
  ASSERT_TRUE(merge_partials(packed, make_view(out.data(), kF32, {2, 1, 1}),
                             make_view(merged.data(), kF32, {1, 2}), Layout::packed)
                  .has_value());
  EXPECT_EQ(out, (std::array<float, 2>{2, 4}));
}

TEST(MergePartials, RefusalsNameTheTensor) {
  Part a{}, b{}, merged{};
  const PartialAttention parts[] = {a.view(), b.view()}, to = merged.view();
  const auto error = [](const Status& status) {
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(error(merge_partials({}, to.out, to.lse)).find("0 parts"), std::string::npos);
  EXPECT_NE(error(merge_partials(parts, to.out, parts[1].lse)).find("lse overlaps part 1 lse"),
            std::string::npos);
  EXPECT_NE(error(merge_partials(parts, make_view(merged.out.data(), kF32, {1, 1, 2, 2}), to.lse))
                .find("lse does not fit"),
            std::string::npos);
  PartialAttention wrong[] = {a.view(), b.view()};
  wrong[1].lse.dtype = kF16;
  EXPECT_NE(error(merge_partials(wrong, to.out, to.lse)).find("part 1 lse has dtype f16"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea
