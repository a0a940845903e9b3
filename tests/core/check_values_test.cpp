#include <gtest/gtest.h>

#include "fovea/attention.hpp"

namespace fovea {
namespace {

float operand[2 * 4 * 8];

AttentionTensors tensors() {
  AttentionTensors t;
  for (TensorView* view : {&t.q, &t.k, &t.v}) *view = make_view(operand, kF32, {2, 4, 1, 8});
  return t;
}

std::string message(const AttentionTensors& t, const CallOptions& options = {}) {
  const Result<Problem> p = describe(t, options);
  if (!p) return p.error().message;
  const Status status = check_values(t, *p);
  if (status) return "accepted";
  EXPECT_EQ(ErrorCode::invalid_value, status.error().code);
  return status.error().message;
}

TEST(CheckValues, kv_lengths_lie_within_the_keys) {
  AttentionTensors t = tensors();
  int32_t narrow[] = {0, 4};
  t.kv_lengths = make_view(narrow, kI32, {2});
  EXPECT_EQ("accepted", message(t));
  narrow[1] = 5;
  EXPECT_EQ("attention: kv_lengths[1] is 5 (accepted: 0..4)", message(t));
  int64_t wide[] = {-1, 4};
  t.kv_lengths = make_view(wide, kI64, {2});
  EXPECT_EQ("attention: kv_lengths[0] is -1 (accepted: 0..4)", message(t));
  wide[0] = (int64_t{1} << 32) + 1;
  EXPECT_EQ("attention: kv_lengths[0] is 4294967297 (accepted: 0..4)", message(t));
}

TEST(CheckValues, boundaries_are_checked_again_after_planning) {
  AttentionTensors t;
  for (TensorView* view : {&t.q, &t.k, &t.v}) *view = make_view(operand, kF32, {8, 1, 8});
  int32_t starts[] = {0, 3, 8};
  t.cu_seqlens_q = t.cu_seqlens_kv = make_view(starts, kI32, {3});
  CallOptions options;
  options.input_layout = Layout::packed;
  const Result<Problem> p = describe(t, options);
  ASSERT_TRUE(p);
  EXPECT_TRUE(check_values(t, *p));
  starts[1] = 9;
  EXPECT_EQ("attention: cu_seqlens_q[2] is 8 (accepted: 9 or more, boundaries never fall)",
            check_values(t, *p).error().message);
}

TEST(CheckValues, boundaries_of_huge_documents_do_not_overflow) {
  AttentionTensors t;
  for (TensorView* view : {&t.q, &t.k, &t.v}) *view = make_view(operand, kF32, {8, 1, 8});
  int32_t starts[] = {0, -2147483647 - 1, 8};
  t.cu_seqlens_q = t.cu_seqlens_kv = make_view(starts, kI32, {3});
  CallOptions options;
  options.input_layout = Layout::packed;
  EXPECT_EQ(
      "attention: cu_seqlens_q[1] is -2147483648 (accepted: 0 or more, boundaries never fall)",
      message(t, options));
}

TEST(CheckValues, integer_masks_name_type_value_and_index) {
  AttentionTensors t = tensors();
  int32_t values[2 * 4 * 4];
  for (int32_t& v : values) v = 1;
  t.mask = make_view(values, kI32, {2, 4, 4});
  EXPECT_EQ("accepted", message(t));
  values[1 * 16 + 2 * 4 + 3] = -1;
  EXPECT_EQ(
      "attention: mask i32[2,4,4] holds -1 at [1,2,3] (accepted: 0 and 1; pass a float mask "
      "for biases)",
      message(t));
  // The bad value lies outside this view.
  t.mask.shape[0] = 1;
  EXPECT_EQ("accepted", message(t));
}

TEST(CheckValues, repeated_rows_of_a_mask_are_read_once) {
  AttentionTensors t = tensors();
  int64_t values[4] = {0, 1, 1, 7};
  t.mask = make_view(values, kI64, {2, 4, 4});
  t.mask.stride = {0, 0, 1};
  EXPECT_EQ(
      "attention: mask i64[2,4,4] holds 7 at [0,0,3] (accepted: 0 and 1; pass a float mask for "
      "biases)",
      message(t));
  values[3] = 0;
  EXPECT_EQ("accepted", message(t));
}

TEST(CheckValues, bytes_are_true_when_not_zero) {
  AttentionTensors t = tensors();
  uint8_t values[8] = {0, 1, 2, 255, 0, 0, 0, 3};
  t.mask = make_view(values, kU8, {2, 4});
  EXPECT_EQ("accepted", message(t));
}

TEST(CheckValues, tensors_on_a_device_are_refused) {
  AttentionTensors t = tensors();
  for (TensorView* view : {&t.q, &t.k, &t.v}) view->device = {DeviceType::cuda, 0};
  const Result<Problem> p = describe(t, {});
  ASSERT_TRUE(p);
  EXPECT_EQ("attention: values are checked on the CPU only, the tensors are on cuda:0",
            check_values(t, *p).error().message);
}

}  // namespace
}  // namespace fovea
