#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "fovea/attention.hpp"

namespace fovea {
namespace {

TEST(OwnedTensor, memory_is_aligned_writable_and_shared_by_copies) {
  const int64_t shape[] = {3, 5};
  Result<OwnedTensor> made = OwnedTensor::allocate(kF32, shape);
  ASSERT_TRUE(made);
  const OwnedTensor copy = *made;
  EXPECT_EQ("f32[3,5]", to_string(copy.view()));
  EXPECT_TRUE(copy.view().contiguous());
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(copy.view().data) % 64);
  std::memset(made->view().data, 1, 60);
  *made = OwnedTensor();
  EXPECT_FALSE(made->view().present());
  EXPECT_EQ(1, static_cast<const char*>(copy.view().data)[59]);
}

TEST(OwnedTensor, an_empty_tensor_has_an_address) {
  const int64_t shape[] = {0, 5};
  const Result<OwnedTensor> made = OwnedTensor::allocate(kBF16, shape);
  ASSERT_TRUE(made);
  EXPECT_NE(nullptr, made->view().data);
}

TEST(OwnedTensor, what_cannot_be_allocated_is_an_error) {
  const int64_t huge[] = {std::numeric_limits<int64_t>::max(), 2};
  EXPECT_EQ(ErrorCode::out_of_memory, OwnedTensor::allocate(kF32, huge).error().code);
  const int64_t large[] = {int64_t{1} << 60};
  EXPECT_EQ("no memory for f32[1152921504606846976] (4611686018427387904 bytes)",
            OwnedTensor::allocate(kF32, large).error().message);
  const int64_t negative[] = {-1};
  EXPECT_EQ(ErrorCode::invalid_argument, OwnedTensor::allocate(kF32, negative).error().code);
  EXPECT_EQ(ErrorCode::invalid_argument, OwnedTensor::allocate(kF32, {}).error().code);
}

}  // namespace
}  // namespace fovea
