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
  for (const LaneMath& math : runnable_lane_math()) {
    std::vector<float> y(x.size());
    math.exp2(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp2(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - want) / want);
    }
    EXPECT_LE(worst, kExp2RelativeError) << name(math.isa);
    EXPECT_GT(worst, 1e-8) << name(math.isa);
  }
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
