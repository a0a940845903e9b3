#include "src/simd/exp2.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {
namespace {

TEST(Exp2, RelativeErrorIsWithinTheStatedBound) {
  // Every 97th float from -2^-30 to -126.
  std::vector<float> x;
  uint32_t first, last;
  const float near = -0x1p-30f, far = -126.f;
  std::memcpy(&first, &near, 4);
  std::memcpy(&last, &far, 4);
  for (uint32_t bits = first; bits <= last; bits += 97) {
    float value;
    std::memcpy(&value, &bits, 4);
    x.push_back(value);
  }
  x.push_back(0.f);
  x.push_back(-126.f);
  const auto check = [&](Isa isa, ArrayFunction function, double bound) {
    std::vector<float> y(x.size());
    function(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp2(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - want) / want);
    }
    EXPECT_LE(worst, bound) << name(isa);
    EXPECT_GT(worst, bound / 20) << name(isa);
  };
  for (const LaneMath& math : runnable_lane_math()) {
    check(math.isa, math.exp2, kExp2RelativeError);
    if (math.exp2_rough != nullptr) check(math.isa, math.exp2_rough, kExp2RoughRelativeError);
  }
}

// Weights relative to an older maximum.
TEST(Exp2, TheRoughFormTakesPositiveArguments) {
  bool some = false;
  for (const LaneMath& math : runnable_lane_math()) {
    if (math.exp2_rough == nullptr) continue;
    some = true;
    for (float x = 0.f; x < 127.f; x += 0.37f) {
      float y = 0.f;
      math.exp2_rough(&x, &y, 1);
      const double want = std::exp2(static_cast<double>(x));
      EXPECT_NEAR(static_cast<double>(y), want, kExp2RoughRelativeError * want) << x;
    }
  }
  if (!some) GTEST_SKIP() << "no instruction set that scales";
}

TEST(Exp2, UnderflowsToExactlyZeroAndKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float odd_nan;
  const uint32_t bits = 0x7fffffffu;  // every payload bit set
  std::memcpy(&odd_nan, &bits, 4);
  const float x[] = {-150.f, -1e30f, -std::numeric_limits<float>::infinity(), nan, odd_nan,
                     -nan,   -126.6f};
  for (const LaneMath& math : runnable_lane_math()) {
    float y[7];
    math.exp2(x, y, 7);
    EXPECT_EQ(y[0], 0.f) << name(math.isa);
    EXPECT_EQ(y[1], 0.f) << name(math.isa);
    EXPECT_EQ(y[2], 0.f) << name(math.isa);
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[4]) && std::isnan(y[5])) << name(math.isa);
    EXPECT_NEAR(y[6], 0.f, 0x1p-126f) << name(math.isa);
  }
}

}  // namespace
}  // namespace fovea::simd::testing
