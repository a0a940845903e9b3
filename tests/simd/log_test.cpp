#include "src/simd/log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {
namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

// Every `step`-th float from `first` to `last`, both of them included.
std::vector<float> sweep(float first, float last, uint32_t step) {
  std::vector<float> x;
  for (uint32_t bits = bits_of(first); bits < bits_of(last); bits += step) {
    x.emplace_back();
    std::memcpy(&x.back(), &bits, 4);
  }
  x.push_back(last);
  return x;
}

std::vector<float> results(ArrayFunction function, const std::vector<float>& x) {
  std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}

// The largest |y - log x| / max(1, |log x|), the measure of kLogError.
double worst_error(ArrayFunction function, const std::vector<float>& x) {
  const std::vector<float> y = results(function, x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::log(static_cast<double>(x[i]));
    const double error =
        std::fabs(static_cast<double>(y[i]) - want) / std::max(1.0, std::fabs(want));
    // A NaN fails too.
    if (!(error <= worst)) worst = std::isnan(error) ? DBL_MAX : error;
  }
  return worst;
}

TEST(Log, ErrorIsWithinTheStatedBoundOverAllPositiveFloats) {
  const std::vector<float> x = sweep(FLT_TRUE_MIN, FLT_MAX, 997);
  ASSERT_GT(x.size(), 2'000'000u);
  for (const LaneMath& math : runnable_lane_math()) {
    const double worst = worst_error(math.log, x);
    EXPECT_LE(worst, kLogError) << name(math.isa);
    EXPECT_GT(worst, 1e-8) << name(math.isa);
  }
}

// Sums of softmax weights are at least 1; around 1 the logarithm is a small difference.
TEST(Log, ErrorIsWithinTheStatedBoundCloseTogetherWhereSumsAre) {
  const std::vector<float> x = sweep(0.5f, 4096.f, 89);
  for (const LaneMath& math : runnable_lane_math()) {
    EXPECT_LE(worst_error(math.log, x), kLogError) << name(math.isa);
  }
}

TEST(Log, SubnormalsAndTheEdgesOfTheRangeAreWithinTheBound) {
  std::vector<float> x = sweep(FLT_TRUE_MIN, 2.f * FLT_MIN, 61);
  for (const float edge : {FLT_MIN, 1.f, FLT_MAX, std::sqrt(0.5f), std::sqrt(2.f), 0x1p100f}) {
    x.push_back(edge);
    x.push_back(std::nextafter(edge, 0.f));
    if (edge < FLT_MAX) x.push_back(std::nextafter(edge, FLT_MAX));
  }
  for (const LaneMath& math : runnable_lane_math()) {
    EXPECT_LE(worst_error(math.log, x), kLogError) << name(math.isa);
  }
}

// The mantissa adds nothing, so one rounding is left.
TEST(Log, PowersOfTwoAreExactMultiplesOfLogTwo) {
  std::vector<float> x;
  for (int e = -149; e <= 127; ++e) x.push_back(std::ldexp(1.f, e));
  for (const LaneMath& math : runnable_lane_math()) {
    const std::vector<float> y = results(math.log, x);
    for (int e = -149; e <= 127; ++e) {
      EXPECT_EQ(y[static_cast<size_t>(e + 149)], static_cast<float>(e) * 0.693147182f)
          << name(math.isa) << " 2^" << e;
    }
  }
}

TEST(Log, KeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float odd_nan;
  const uint32_t bits = 0x7fffffffu;  // every payload bit set
  std::memcpy(&odd_nan, &bits, 4);
  for (const LaneMath& math : runnable_lane_math()) {
    for (const float y : results(math.log, {nan, odd_nan, -nan})) {
      EXPECT_TRUE(std::isnan(y)) << name(math.isa);
    }
  }
}

}  // namespace
}  // namespace fovea::simd::testing
