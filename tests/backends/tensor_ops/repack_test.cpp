// Changes of layout on the CPU: every element goes where its index says.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "fovea/tensor_ops.hpp"

namespace fovea {
namespace {

std::string message(const Status& status) {
  return status ? std::string() : status.error().message;
}

TEST(CopyLayout, SwapsTokensAndHeads) {
  std::array<int32_t, 12> bshd{}, bhsd{}, back{};  // [1,3,2,2]
  for (int32_t i = 0; i < 12; ++i) bshd[static_cast<size_t>(i)] = i;
  const TensorView from = make_view(bshd.data(), kI32, {1, 3, 2, 2});
  const TensorView to = make_view(bhsd.data(), kI32, {1, 2, 3, 2});
  ASSERT_TRUE(copy_layout(from, Layout::bshd, to, Layout::bhsd).has_value());
  EXPECT_EQ(bhsd, (std::array<int32_t, 12>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  ASSERT_TRUE(
      copy_layout(to, Layout::bhsd, make_view(back.data(), kI32, {1, 3, 2, 2}), Layout::bshd)
          .has_value());
  EXPECT_EQ(back, bshd);
}

TEST(PackDocuments, TakesRowsAndPutsThemBack) {
  // [B,S,H,D] = [3,2,1,1], documents of 2, 0 and 1 rows.
  std::array<float, 6> padded{1, 2, 3, 4, 5, 6}, back{9, 9, 9, 9, 9, 9};
  std::array<float, 4> packed{9, 9, 9, 9};
  std::array<int32_t, 4> cu{0, 2, 2, 3};
  const TensorView rows = make_view(packed.data(), kF32, {4, 1, 1});
  const TensorView starts = make_view(cu.data(), kI32, {4});
  ASSERT_TRUE(
      pack_documents(make_view(padded.data(), kF32, {3, 2, 1, 1}), Layout::bshd, starts, rows)
          .has_value());
  EXPECT_EQ(packed, (std::array<float, 4>{1, 2, 5, 9}));  // rows behind the last stay
  ASSERT_TRUE(
      unpack_documents(rows, starts, make_view(back.data(), kF32, {3, 2, 1, 1}), Layout::bshd)
          .has_value());
  EXPECT_EQ(back, (std::array<float, 6>{1, 2, 0, 0, 5, 0}));
}

TEST(Repack, RefusalsNameTheTensor) {
  std::array<float, 8> a{}, b{};
  std::array<int32_t, 3> cu{0, 2, 5};
  const TensorView x = make_view(a.data(), kF32, {2, 2, 1, 2});
  EXPECT_NE(message(copy_layout(x, Layout::bshd, x, Layout::bshd)).find("overlaps"),
            std::string::npos);
  EXPECT_NE(
      message(copy_layout(x, Layout::bshd, make_view(b.data(), kF32, {2, 2, 1, 2}), Layout::bhsd))
          .find("shape"),
      std::string::npos);
  EXPECT_NE(message(copy_layout(x, Layout::packed, x, Layout::bshd)).find("pack_documents"),
            std::string::npos);
  const TensorView rows = make_view(b.data(), kF32, {4, 1, 2});
  EXPECT_NE(message(pack_documents(x, Layout::bshd, make_view(cu.data(), kI32, {3}), rows))
                .find("cu_seqlens"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea
