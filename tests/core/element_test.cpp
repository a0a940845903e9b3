#include "src/core/element.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace fovea {
namespace {

TEST(Element, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = f16_to_float(half);
    const float bf16 = bf16_to_float(half);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(f16))));
    } else {
      EXPECT_EQ(float_to_f16(f16), half);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16))));
    } else {
      EXPECT_EQ(float_to_bf16(bf16), half);
    }
  }
}

TEST(Element, KnownValues) {
  EXPECT_EQ(f16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_float(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);         // tie to even
  EXPECT_EQ(float_to_f16(0x1.000002p-25f), 0x0001);  // just above
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_f16(1.0f + 0x1p-11f), 0x3c00);      // tie to even
  EXPECT_EQ(float_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie to even
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);      // tie to even
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Element, Float64IsRoundedOnce) {
  // Just above a tie of f16: rounding to float32 first would hide the last bit.
  uint16_t half = 0;
  store_element(&half, kF16, 0, 1.0 + 0x1p-11 + 0x1p-40);
  EXPECT_EQ(half, 0x3c01);
  store_element(&half, kBF16, 0, -(1.0 + 0x1p-8 + 0x1p-40));
  EXPECT_EQ(half, 0xbf81);
  store_element(&half, kF16, 0, 1e300);
  EXPECT_EQ(half, 0x7c00);
}

TEST(Element, ReadsAndWritesEveryType) {
  for (DType dtype : {kF64, kF32, kF16, kBF16, kBool, kU8, kI32, kI64}) {
    alignas(8) unsigned char memory[16] = {};
    store_element(memory, dtype, 1, 1);
    EXPECT_EQ(load_element(memory, dtype, 0), 0) << name(dtype);
    EXPECT_EQ(load_element(memory, dtype, 1), 1) << name(dtype);
  }
  EXPECT_TRUE(std::isnan(load_element("", DType{0, 4, 1}, 0)));
}

}  // namespace
}  // namespace fovea
