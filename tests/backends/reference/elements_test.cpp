#include "src/backends/reference/elements.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "src/core/element.hpp"

namespace fovea::backends::reference {
namespace {

// The oracle has conversions of its own; both must be right for both to agree.
TEST(ReferenceElements, AgreeWithTheLibrarysConversions) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double f16 = widen(F16{half});
    const double bf16 = widen(BF16{half});
    if (!std::isnan(f16)) {
      EXPECT_EQ(f16, f16_to_float(half));
    }
    if (!std::isnan(bf16)) {
      EXPECT_EQ(bf16, bf16_to_float(half));
    }
  }
  uint64_t state = 12345;
  for (int i = 0; i < 300000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int exponent = static_cast<int>(state >> 58) - 42;
    // Values on, next to and between the ties of both types.
    double x = std::ldexp(static_cast<double>((state >> 20) % 8192), exponent);
    if (i % 3 == 1) x = std::nextafter(x, 1e30);
    if (i % 3 == 2) x *= 1 + 1e-9 * static_cast<double>(state % 1000);
    if (i % 2 == 1) x = -x;
    uint16_t half = 0;
    F16 f16;
    BF16 bf16;
    store_element(&half, kF16, 0, x);
    narrow(x, f16);
    ASSERT_EQ(half, f16.bits) << std::hexfloat << x;
    store_element(&half, kBF16, 0, x);
    narrow(x, bf16);
    ASSERT_EQ(half, bf16.bits) << std::hexfloat << x;
  }
}

}  // namespace
}  // namespace fovea::backends::reference
