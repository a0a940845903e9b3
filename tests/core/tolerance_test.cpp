#include "src/core/tolerance.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(Tolerance, NumbersOfTheContract) {
  struct Row {
    DType dtype, out;
    DataKind data;
    double rel_l2, lse;
  };
  for (const Row& row : {Row{kF32, kF32, DataKind::random, 2e-6, 1e-5},
                         Row{kF32, kF32, DataKind::structured, 2e-6, 1e-5},
                         Row{kF16, kF16, DataKind::random, 1e-3, 1e-3},
                         Row{kBF16, kBF16, DataKind::random, 6e-3, 1e-3},
                         Row{kBF16, kF32, DataKind::random, 6e-3, 1e-3},
                         Row{kBF16, kBF16, DataKind::structured, 3e-3, 1e-3},
                         Row{kBF16, kF32, DataKind::structured, 1e-3, 1e-3}}) {
    const Tolerance t = exact_tolerance(row.dtype, row.out, row.data, 16);
    EXPECT_EQ(t.rel_l2, row.rel_l2);
    EXPECT_EQ(t.lse, row.lse);
  }
}

TEST(Tolerance, LargeScoresAddToBothNumbers) {
  const Tolerance t = exact_tolerance(kF32, kF32, DataKind::random, 1024);
  EXPECT_EQ(t.rel_l2, 2e-6 + 0x1p-12);
  EXPECT_EQ(t.lse, 1e-5 + 0x1p-12);
}

TEST(Tolerance, WithinNeedsEqualNonFinitePositions) {
  Comparison c;
  c.rel_l2 = 1e-6;
  EXPECT_TRUE(within(c, 1e-6));
  EXPECT_FALSE(within(c, 9e-7));
  c.nonfinite_mismatches = 1;
  EXPECT_FALSE(within(c, 1));
}

}  // namespace
}  // namespace fovea
