#include "src/simd/exp2.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/simd/cpu_features.hpp"
#include "tests/simd/exp2_lanes.hpp"

namespace fovea::simd::testing {
namespace {

struct Candidate {
  Isa isa;
  Exp2Array function;
  double bound = kExp2RelativeError;
};

std::vector<Candidate> candidates() {
  std::vector<Candidate> list;
  for (const Candidate& c :
       {Candidate{Isa::generic, exp2_generic()}, Candidate{Isa::avx2, exp2_avx2()},
        Candidate{Isa::avx512, exp2_avx512()},
        Candidate{Isa::avx512, exp2_rough_avx512(), kExp2RoughRelativeError}}) {
    if (c.function != nullptr && includes(probe_isa(), c.isa)) list.push_back(c);
  }
  return list;
}

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
  for (const Candidate& c : candidates()) {
    std::vector<float> y(x.size());
    c.function(x.data(), y.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp2(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - want) / want);
    }
    EXPECT_LE(worst, c.bound) << name(c.isa);
    EXPECT_GT(worst, c.bound / 20) << name(c.isa);
  }
}

// Weights relative to an older maximum.
TEST(Exp2, TheRoughFormTakesPositiveArguments) {
  const Exp2Array rough = exp2_rough_avx512();
  if (rough == nullptr || !includes(probe_isa(), Isa::avx512)) GTEST_SKIP() << "no AVX-512";
  for (float x = 0.f; x < 127.f; x += 0.37f) {
    float y = 0.f;
    rough(&x, &y, 1);
    const double want = std::exp2(static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(y), want, kExp2RoughRelativeError * want) << x;
  }
}

TEST(Exp2, UnderflowsToExactlyZeroAndKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float odd_nan;
  const uint32_t bits = 0x7fffffffu;  // every payload bit set
  std::memcpy(&odd_nan, &bits, 4);
  const float x[] = {-150.f, -1e30f, -std::numeric_limits<float>::infinity(), nan, odd_nan,
                     -nan,   -126.6f};
  for (const Candidate& c : candidates()) {
    float y[7];
    c.function(x, y, 7);
    EXPECT_EQ(y[0], 0.f) << name(c.isa);
    EXPECT_EQ(y[1], 0.f) << name(c.isa);
    EXPECT_EQ(y[2], 0.f) << name(c.isa);
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[4]) && std::isnan(y[5])) << name(c.isa);
    EXPECT_NEAR(y[6], 0.f, 0x1p-126f) << name(c.isa);
  }
}

}  // namespace
}  // namespace fovea::simd::testing
