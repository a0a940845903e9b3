#include "fovea/tensor_view.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

namespace fovea {
namespace {

// The layout of DLPack's DLTensor.
struct DlTensor {
  void* data = nullptr;
  int32_t device_type = 1;
  int32_t device_id = 0;
  int32_t ndim = 0;
  uint8_t code = 2;
  uint8_t bits = 32;
  uint16_t lanes = 1;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  uint64_t byte_offset = 0;
};

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(TensorView, is_trivially_copyable_and_absent_by_default) {
  EXPECT_TRUE(std::is_trivially_copyable_v<TensorView>);
  EXPECT_FALSE(TensorView().present());
}

TEST(TensorView, a_made_view_is_contiguous) {
  float data[24];
  const TensorView view = make_view(data, kF32, {2, 3, 4});
  EXPECT_TRUE(view.present());
  EXPECT_EQ(24, view.numel());
  EXPECT_EQ(12, view.stride[0]);
  EXPECT_EQ(4, view.stride[1]);
  EXPECT_EQ(1, view.stride[2]);
  EXPECT_TRUE(view.contiguous());
  EXPECT_EQ("f32[2,3,4]", to_string(view));
}

TEST(TensorView, contiguity_ignores_axes_of_size_one_and_empty_tensors) {
  TensorView view = make_view(nullptr, kF32, {2, 1, 4});
  view.stride[1] = 77;
  EXPECT_TRUE(view.contiguous());
  view.stride[0] = 8;
  EXPECT_FALSE(view.contiguous());
  view.shape[0] = 0;
  EXPECT_TRUE(view.contiguous());
}

TEST(TensorView, dlpack_metadata_is_copied) {
  float data[64];
  const int64_t shape[] = {2, 3};
  const int64_t strides[] = {10, 1};
  DlTensor source{data, 1, 0, 2, 4, 16, 1, shape, strides, 8};
  const Result<TensorView> view = from_dlpack(&source);
  ASSERT_TRUE(view);
  EXPECT_EQ(reinterpret_cast<char*>(data) + 8, view->data);
  EXPECT_EQ(kBF16, view->dtype);
  EXPECT_EQ(10, view->stride[0]);
  source.strides = nullptr;
  EXPECT_EQ(3, from_dlpack(&source)->stride[0]);
}

TEST(TensorView, bad_dlpack_tensors_are_refused_by_field) {
  EXPECT_EQ("the DLPack tensor is a null pointer", from_dlpack(nullptr).error().message);
  const int64_t shape[] = {2, -3};
  const int64_t huge[] = {kHuge, kHuge};
  struct Case {
    DlTensor tensor;
    const char* message;
  };
  const Case cases[] = {
      {{nullptr, 1, 0, 0, 2, 32, 1, shape, nullptr, 0},
       "DLPack tensor: rank 0 is not supported (accepted: 1..5)"},
      {{nullptr, 1, 0, 6, 2, 32, 1, shape, nullptr, 0},
       "DLPack tensor: rank 6 is not supported (accepted: 1..5)"},
      {{nullptr, 99, 0, 2, 2, 32, 1, shape, nullptr, 0},
       "DLPack tensor: device type 99 is not supported (accepted: cpu, cuda, cuda_host, rocm)"},
      {{nullptr, 1, 0, 2, 2, 32, 4, shape, nullptr, 0},
       "DLPack tensor: vector elements with 4 lanes are not supported (accepted: 1)"},
      {{nullptr, 1, 0, 2, 2, 32, 1, nullptr, nullptr, 0}, "DLPack tensor: shape is a null pointer"},
      {{nullptr, 1, 0, 2, 2, 32, 1, shape, nullptr, 0},
       "DLPack tensor: shape[1] is -3, it must be >= 0"},
      {{nullptr, 1, 0, 2, 2, 32, 1, huge, nullptr, 0},
       "DLPack tensor f32[9223372036854775807,9223372036854775807]: the size does not fit in 64 "
       "bits"},
  };
  for (const Case& c : cases) {
    const Result<TensorView> view = from_dlpack(&c.tensor);
    ASSERT_FALSE(view) << c.message;
    EXPECT_EQ(ErrorCode::invalid_tensor, view.error().code);
    EXPECT_EQ(c.message, view.error().message);
  }
}

}  // namespace
}  // namespace fovea
