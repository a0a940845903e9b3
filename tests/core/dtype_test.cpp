#include "fovea/dtype.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

TEST(DType, names_read_back_as_the_same_type) {
  for (DType dtype : {kF64, kF32, kF16, kBF16, kBool, kU8, kI32, kI64})
    EXPECT_EQ(dtype, parse_dtype(name(dtype))) << name(dtype);
  EXPECT_EQ("unknown", name(DType{2, 8, 1}));
}

TEST(DType, long_spellings_are_accepted_in_any_case) {
  EXPECT_EQ(kF32, parse_dtype("Float32"));
  EXPECT_EQ(kBF16, parse_dtype("BFLOAT16"));
  EXPECT_EQ(kF16, parse_dtype("half"));
  EXPECT_EQ(std::nullopt, parse_dtype("f8"));
  EXPECT_EQ(std::nullopt, parse_dtype(""));
}

TEST(DType, sizes_are_in_bytes) {
  EXPECT_EQ(1u, size_bytes(kBool));
  EXPECT_EQ(2u, size_bytes(kBF16));
  EXPECT_EQ(8u, size_bytes(kF64));
}

}  // namespace
}  // namespace fovea
