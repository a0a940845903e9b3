#include <gtest/gtest.h>

#include <cstddef>
#include <limits>

#include "fovea/attention.hpp"
#include "tests/golden/golden.hpp"

namespace fovea {
namespace {

// Memory that is never read; tensors of a call are placed far apart in it.
alignas(64) std::byte arena[1 << 20];
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

void* slot(int index) { return arena + 65536 * index; }

// q, k, v of a call with B = 2, Sq = 5, Skv = 7, Hq = 6, Hkv = 3, D = 16, Dv = 8.
struct Call {
  AttentionTensors t;
  CallOptions o;
};

Call call(DType dtype = kF32) {
  Call c;
  c.t.q = make_view(slot(0), dtype, {2, 5, 6, 16});
  c.t.k = make_view(slot(1), dtype, {2, 7, 3, 16});
  c.t.v = make_view(slot(2), dtype, {2, 7, 3, 8});
  return c;
}

Call packed_call(int32_t* q_starts, int32_t* kv_starts) {
  Call c;
  c.o.input_layout = Layout::packed;
  c.t.q = make_view(slot(0), kF32, {5, 6, 16});
  c.t.k = make_view(slot(1), kF32, {7, 3, 16});
  c.t.v = make_view(slot(2), kF32, {7, 3, 8});
  c.t.cu_seqlens_q = make_view(q_starts, kI32, {3});
  c.t.cu_seqlens_kv = make_view(kv_starts, kI32, {3});
  return c;
}

std::string text_of(const Call& c) {
  const Result<Problem> p = describe(c.t, c.o);
  return p ? to_string(*p) : p.error().message;
}

Call with_mask(DType dtype, std::initializer_list<int64_t> shape) {
  Call c = call();
  c.t.mask = make_view(slot(3), dtype, shape);
  return c;
}

TEST(Describe, sizes_come_from_the_layout) {
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8", text_of(call()));
  Call c = call(kBF16);
  c.t.q = make_view(slot(0), kBF16, {2, 6, 5, 16});
  c.t.k = make_view(slot(1), kBF16, {2, 3, 7, 16});
  c.t.v = make_view(slot(2), kBF16, {2, 3, 7, 8});
  c.o.input_layout = Layout::bhsd;
  EXPECT_EQ("bf16 b2 h6 s5 d16 hk=3 sk=7 dv=8 layout=bhsd", text_of(c));
  c.o.output_layout = Layout::bshd;
  EXPECT_EQ("bf16 b2 h6 s5 d16 hk=3 sk=7 dv=8 layout=bhsd outlayout=bshd", text_of(c));
}

TEST(Describe, options_reach_the_problem) {
  Call c = call(kF16);
  c.o.scale = 0.5;
  c.o.is_causal = true;
  c.o.window = {3, 0};
  c.o.return_lse = true;
  c.o.out_dtype = kF32;
  EXPECT_EQ("f16 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=causal window=3,0 scale=0.5 lse=1 out=f32",
            text_of(c));
}

TEST(Describe, outputs_that_are_given_state_their_type_and_the_lse) {
  Call c = call(kF16);
  c.t.out = make_view(slot(4), kF32, {2, 5, 6, 8});
  c.t.lse = make_view(slot(5), kF32, {2, 6, 5});
  EXPECT_EQ("f16 b2 h6 s5 d16 hk=3 sk=7 dv=8 lse=1 out=f32", text_of(c));
}

TEST(Describe, a_problem_of_real_tensors_reads_back) {
  Call c = call();
  c.t.q.stride[0] = 5 * 6 * 16 + 128;
  const Result<Problem> p = describe(c.t, c.o);
  ASSERT_TRUE(p);
  EXPECT_EQ(StridesKind::custom, p->strides_kind);
  EXPECT_EQ(*p, *parse_problem(to_string(*p)));
}

// Row 1: key padding with Sq != Skv is legal and stays a key mask.
TEST(Describe, key_padding_of_cross_attention_is_a_key_mask) {
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=keys", text_of(with_mask(kBool, {2, 7})));
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=keys maskdims=none",
            text_of(with_mask(kBool, {1, 7})));
}

// Rows 2 and 5: a mask is part of the problem, whatever its values.
TEST(Describe, every_mask_reaches_the_problem) {
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=bool", text_of(with_mask(kBool, {2, 5, 7})));
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=bool maskdims=b",
            text_of(with_mask(kBool, {2, 1, 1, 7})));
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=bool maskdims=hq maskdtype=u8",
            text_of(with_mask(kU8, {1, 6, 5, 7})));
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=bias maskdims=none maskdtype=f16",
            text_of(with_mask(kF16, {1, 1, 1, 7})));
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=keys maskdtype=bf16",
            text_of(with_mask(kBF16, {2, 7})));
}

// Row 3: key padding stays key padding when the batch is as large as the query length.
TEST(Describe, a_square_looking_mask_of_rank_two_is_key_padding) {
  Call c;
  for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v}) *view = make_view(slot(0), kF32, {5, 5, 1, 4});
  c.t.mask = make_view(slot(3), kBool, {5, 5});
  EXPECT_EQ("f32 b5 h1 s5 d4 mask=keys", text_of(c));
}

// Row 6: integer masks of 0 and 1 are accepted, other values are refused by type, value and place.
TEST(Describe, integer_masks_hold_zeros_and_ones) {
  int64_t values[14] = {0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  Call c = call();
  c.t.mask = make_view(values, kI64, {2, 7});
  const Result<Problem> p = describe(c.t, c.o);
  ASSERT_TRUE(p);
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=keys maskdtype=i64", to_string(*p));
  EXPECT_TRUE(check_values(c.t, *p));
  values[10] = 2;
  const Status status = check_values(c.t, *p);
  ASSERT_FALSE(status);
  EXPECT_EQ(ErrorCode::invalid_value, status.error().code);
  EXPECT_EQ(
      "attention: mask i64[2,7] holds 2 at [1,3] (accepted: 0 and 1; pass a float mask for biases)",
      status.error().message);
}

// Row 11: a 16-bit mask needs no alignment beyond its elements.
TEST(Describe, a_mask_may_have_any_key_count_and_address) {
  Call c;
  c.t.q = make_view(slot(0), kBF16, {2, 350, 1, 256});
  c.t.k = c.t.v = make_view(slot(1), kBF16, {2, 700, 1, 256});
  c.t.mask = make_view(static_cast<std::byte*>(slot(3)) + 2, kBF16, {2, 1, 700});
  EXPECT_EQ("bf16 b2 h1 s350 d256 sk=700 mask=bias maskdims=b maskdtype=bf16", text_of(c));
}

// Row 12: odd key counts and head sizes are legal arguments.
TEST(Describe, key_counts_and_head_sizes_need_no_multiple) {
  Call c;
  c.t.q = make_view(slot(0), kF16, {1, 4096, 8, 40});
  c.t.k = c.t.v = make_view(slot(1), kF16, {1, 77, 8, 40});
  EXPECT_EQ("f16 b1 h8 s4096 d40 sk=77", text_of(c));
}

// Row 13: [1,Skv] hides keys; [Sq,1] is an error (golden file).
TEST(Describe, one_row_of_keys_serves_the_whole_batch) {
  const Result<Problem> p = describe(with_mask(kBool, {1, 7}).t, {});
  ASSERT_TRUE(p);
  EXPECT_EQ((MaskTensor{MaskKind::keys, kBool, false, false, false}), p->mask);
}

// Row 15: no keys, no queries and no batch are legal.
TEST(Describe, empty_tensors_are_legal) {
  Call c = call();
  c.t.k = make_view(nullptr, kF32, {2, 0, 3, 16});
  c.t.v = make_view(nullptr, kF32, {2, 0, 3, 8});
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=0 dv=8", text_of(c));
  c.t.mask = make_view(nullptr, kBool, {2, 0});
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=0 dv=8 mask=keys", text_of(c));
  c = call();
  for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v}) {
    view->shape[0] = 0;
    view->data = nullptr;
  }
  EXPECT_EQ("f32 b0 h6 s5 d16 hk=3 sk=7 dv=8", text_of(c));
}

// Row 15, packed: an empty document.
TEST(Describe, packed_documents_may_be_empty) {
  int32_t q_starts[] = {0, 2, 5}, kv_starts[] = {0, 7, 7};
  const Call c = packed_call(q_starts, kv_starts);
  EXPECT_EQ("f32 b1 h6 s5 d16 hk=3 sk=7 dv=8 layout=packed ndocs=2 maxdoc=3:7", text_of(c));
  const Result<Problem> p = describe(c.t, c.o);
  EXPECT_TRUE(check_values(c.t, *p));
}

// Row 16: causal with more keys than queries is legal; the diagonal ends at the last key.
TEST(Describe, causal_cross_lengths_are_legal) {
  Call c = call();
  c.o.is_causal = true;
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 mask=causal", text_of(c));
}

// Rows 24 and 25: offsets beyond 2^31 elements are legal, and refused exactly at 64 bits.
TEST(Describe, strides_beyond_32_bits_are_legal) {
  Call c = call();
  c.t.q.stride[1] = (int64_t{1} << 28) + 64;
  c.t.q.stride[0] = int64_t{1} << 40;
  const Result<Problem> p = describe(c.t, c.o);
  ASSERT_TRUE(p);
  EXPECT_EQ((Strides{int64_t{1} << 40, (int64_t{1} << 28) + 64, 16}), p->q_strides);
  // The last element must end at or below 2^63 - 1 bytes.
  const int64_t rest = 4 * c.t.q.stride[1] + 5 * 16 + 15 + 1;
  c.t.q.stride[0] = kHuge / 4 - rest - 1;
  EXPECT_TRUE(describe(c.t, c.o));
  c.t.q.stride[0] += 2;
  EXPECT_FALSE(describe(c.t, c.o));
}

// Row 26: [B,H,S,D] storage seen as [B,S,H,D], views of a fused projection, expanded heads.
TEST(Describe, strides_of_known_views_have_names) {
  Call c = call();
  c.t.q.stride = {5 * 96, 16, 80, 1};
  c.t.k.stride = {7 * 48, 16, 112, 1};
  c.t.v.stride = {7 * 24, 8, 56, 1};
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 strides=bhsd_view", text_of(c));
  c = call();
  c.t.k.stride = {0, 16, 0, 1};
  c.t.v.stride = {0, 8, 0, 1};
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 strides=expanded", text_of(c));
  Call fused;
  auto* const data = static_cast<float*>(slot(0));
  int64_t offset = 0;
  for (TensorView* view : {&fused.t.q, &fused.t.k, &fused.t.v}) {
    *view = make_view(data + offset, kF32, {2, 5, 4, 16});
    view->stride = {5 * 192, 192, 16, 1};
    offset += 64;
  }
  EXPECT_EQ("f32 b2 h4 s5 d16 strides=fused_qkv", text_of(fused));
}

TEST(Describe, strides_of_axes_without_a_second_element_do_not_count) {
  Call c;
  for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v}) {
    *view = make_view(slot(0), kF32, {1, 4, 1, 8});
    view->stride[0] = 999;
    view->stride[2] = 0;
  }
  EXPECT_EQ("f32 b1 h1 s4 d8", text_of(c));
}

// Row 27: the output's shape and strides follow from sizes and layout alone.
TEST(Describe, the_output_is_contiguous_for_strided_inputs) {
  Call c = call();
  c.t.q.stride = {5 * 96, 16, 80, 1};
  const Result<Problem> p = describe(c.t, c.o);
  ASSERT_TRUE(p);
  const Result<OutputSpecs> specs = output_spec(*p);
  ASSERT_TRUE(specs);
  EXPECT_EQ((std::vector<int64_t>{2, 5, 6, 8}), specs->out.shape);
  EXPECT_EQ((std::vector<int64_t>{240, 48, 8, 1}), specs->out.strides);
  EXPECT_EQ(kF32, specs->out.dtype);
}

// Row 30: fewer key heads are legal when they divide the query heads; row 29 is in the golden file.
TEST(Describe, grouped_heads_are_legal) { EXPECT_EQ(3, describe(call().t, {})->heads_kv); }

// Row 31: nothing about a grouped problem depends on a materialised mask.
TEST(Describe, a_key_mask_of_grouped_heads_stays_a_key_mask) {
  EXPECT_EQ(MaskKind::keys, describe(with_mask(kBool, {2, 7}).t, {})->mask.kind);
}

// Row 40: the log-sum-exp is f32 [B,Hq,Sq] in both padded layouts and [Hq,Tq] packed.
TEST(Describe, the_lse_has_one_shape_per_layout) {
  Call c = call(kBF16);
  Result<OutputSpecs> specs = output_spec(*describe(c.t, c.o));
  EXPECT_EQ(kF32, specs->lse.dtype);
  EXPECT_EQ((std::vector<int64_t>{2, 6, 5}), specs->lse.shape);
  EXPECT_EQ((std::vector<int64_t>{30, 5, 1}), specs->lse.strides);
  c.o.output_layout = Layout::bhsd;
  specs = output_spec(*describe(c.t, c.o));
  EXPECT_EQ((std::vector<int64_t>{2, 6, 5}), specs->lse.shape);
  EXPECT_EQ((std::vector<int64_t>{2, 6, 5, 8}), specs->out.shape);
  int32_t q_starts[] = {0, 2, 5}, kv_starts[] = {0, 7, 7};
  const Call packed = packed_call(q_starts, kv_starts);
  specs = output_spec(*describe(packed.t, packed.o));
  EXPECT_EQ((std::vector<int64_t>{6, 5}), specs->lse.shape);
  EXPECT_EQ((std::vector<int64_t>{5, 6, 8}), specs->out.shape);
}

// Row 45: the default scale belongs to the logical head size.
TEST(Describe, the_default_scale_is_that_of_the_given_head_size) {
  Call c;
  for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v}) *view = make_view(slot(0), kF32, {1, 4, 1, 72});
  EXPECT_NEAR(0.11785, describe(c.t, c.o)->effective_scale(), 1e-5);
}

TEST(Describe, alignment_is_that_of_the_least_aligned_operand) {
  Call c = call();
  c.t.k.data = static_cast<std::byte*>(slot(1)) + 16;
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 align=16", text_of(c));
}

TEST(Describe, kv_lengths_are_part_of_the_problem) {
  int32_t lengths[] = {7, 0};
  Call c = call();
  c.t.kv_lengths = make_view(lengths, kI32, {2});
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8 kvlen=?", text_of(c));
  EXPECT_TRUE(check_values(c.t, *describe(c.t, c.o)));
}

TEST(Describe, outputs_next_to_inputs_are_legal) {
  Call c = call();
  auto* const end = static_cast<float*>(slot(0)) + 2 * 5 * 6 * 16;
  c.t.out = make_view(end, kF32, {2, 5, 6, 8});
  EXPECT_EQ("f32 b2 h6 s5 d16 hk=3 sk=7 dv=8", text_of(c));
}

TEST(Describe, max_lengths_on_a_device_come_from_the_caller) {
  int32_t starts[3] = {};
  Call c = packed_call(starts, starts);
  const Device gpu{DeviceType::cuda, 1};
  for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v, &c.t.cu_seqlens_q, &c.t.cu_seqlens_kv})
    view->device = gpu;
  c.o.max_seqlen_q = 4;
  c.o.max_seqlen_kv = 4096;
  EXPECT_EQ("f32 b1 h6 s5 d16 hk=3 sk=7 dv=8 layout=packed ndocs=2 maxdoc=4:7", text_of(c));
}

// Every kind of wrong argument: what the message says is fixed.
TEST(Describe, errors_say_what_was_passed_and_what_is_accepted) {
  struct Case {
    const char* what;
    void (*change)(Call&);
  };
  static int32_t lengths[] = {1, 1, 1};
  static int32_t good_q[] = {0, 2, 5}, good_kv[] = {0, 7, 7};
  static int32_t late[] = {1, 2, 5}, falling[] = {0, 6, 5}, short_end[] = {0, 2, 4};
  const Case cases[] = {
      {"no k", [](Call& c) { c.t.k = {}; }},
      {"rank 3 in a padded layout",
       [](Call& c) {
         c.t.q = make_view(slot(0), kF32, {5, 6, 16});
       }},
      {"rank 4 packed", [](Call& c) { c.o.input_layout = Layout::packed; }},
      {"rank out of range", [](Call& c) { c.t.mask = c.t.q, c.t.mask.rank = 9; }},
      {"f64 inputs", [](Call& c) { c.t.q.dtype = kF64; }},
      {"8-bit inputs",
       [](Call& c) {
         c.t.q.dtype = {10, 8, 1};
       }},
      {"4-bit inputs",
       [](Call& c) {
         c.t.q.dtype = {2, 4, 1};
       }},
      {"k of another type", [](Call& c) { c.t.k.dtype = kF16; }},
      {"v of another type", [](Call& c) { c.t.v.dtype = kBF16; }},
      {"k on another device",
       [](Call& c) {
         c.t.k.device = {DeviceType::cuda, 0};
       }},
      {"negative size", [](Call& c) { c.t.v.shape[1] = -7; }},
      {"negative stride", [](Call& c) { c.t.q.stride[1] = -96; }},
      {"last axis not contiguous", [](Call& c) { c.t.k.stride[3] = 2; }},
      {"last axis expanded", [](Call& c) { c.t.k.stride[3] = 0; }},
      {"size beyond 64 bits", [](Call& c) { c.t.q.shape[0] = kHuge; }},
      {"strides beyond 64 bits", [](Call& c) { c.t.q.stride[0] = kHuge / 2; }},
      {"null data", [](Call& c) { c.t.v.data = nullptr; }},
      {"misaligned data", [](Call& c) { c.t.q.data = arena + 2; }},
      {"batch differs", [](Call& c) { c.t.k.shape[0] = 3; }},
      {"head_dim differs",
       [](Call& c) {
         c.t.k = make_view(slot(1), kF32, {2, 7, 3, 8});
       }},
      {"v has fewer keys", [](Call& c) { c.t.v.shape[1] = 6; }},
      {"v has other heads", [](Call& c) { c.t.v.shape[2] = 2; }},
      {"heads do not divide (3 and 2)",
       [](Call& c) { c.t.q.shape[2] = 3, c.t.k.shape[2] = c.t.v.shape[2] = 2; }},
      {"no heads", [](Call& c) { c.t.k.shape[2] = c.t.v.shape[2] = 0; }},
      {"head_dim 0", [](Call& c) { c.t.q.shape[3] = c.t.k.shape[3] = 0; }},
      {"scale 0", [](Call& c) { c.o.scale = 0.0; }},
      {"scale not a number", [](Call& c) { c.o.scale = std::numeric_limits<double>::quiet_NaN(); }},
      {"causal looking ahead",
       [](Call& c) {
         c.o.is_causal = true, c.o.window = {-1, 2};
       }},
      {"window below -1",
       [](Call& c) {
         c.o.window = {-2, 0};
       }},
      {"output type", [](Call& c) { c.o.out_dtype = kBF16; }},
      {"packed output of padded input", [](Call& c) { c.o.output_layout = Layout::packed; }},
      {"mask [Sq,Skv]",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {5, 7});
       }},
      {"mask [Sq,1]",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {5, 1});
       }},
      {"mask [B,1]",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {2, 1});
       }},
      {"mask [Skv]", [](Call& c) { c.t.mask = make_view(slot(3), kBool, {7}); }},
      {"mask of rank 5",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {1, 2, 6, 5, 7});
       }},
      {"mask [Sq,Skv] of rank 3",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {5, 5, 7});
       }},
      {"mask per key head",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {2, 3, 5, 7});
       }},
      {"mask with queries and heads swapped",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {2, 5, 6, 7});
       }},
      {"mask of other keys",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kF32, {2, 8});
       }},
      {"mask of f64",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kF64, {2, 7});
       }},
      {"mask transposed",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {2, 7});
         c.t.mask.stride = {1, 2};
       }},
      {"mask flipped",
       [](Call& c) {
         c.t.mask = make_view(slot(3), kBool, {2, 7});
         c.t.mask.stride[0] = -7;
       }},
      {"kv_lengths of f32", [](Call& c) { c.t.kv_lengths = make_view(lengths, kF32, {2}); }},
      {"kv_lengths of another batch",
       [](Call& c) { c.t.kv_lengths = make_view(lengths, kI32, {3}); }},
      {"kv_lengths of rank 2",
       [](Call& c) {
         c.t.kv_lengths = make_view(lengths, kI32, {2, 1});
       }},
      {"kv_lengths expanded",
       [](Call& c) {
         c.t.kv_lengths = make_view(lengths, kI32, {2});
         c.t.kv_lengths.stride[0] = 0;
       }},
      {"cu_seqlens in a padded layout",
       [](Call& c) { c.t.cu_seqlens_q = make_view(good_q, kI32, {3}); }},
      {"packed without cu_seqlens",
       [](Call& c) { c = packed_call(good_q, good_kv), c.t.cu_seqlens_kv = {}; }},
      {"packed with a mask",
       [](Call& c) {
         c = packed_call(good_q, good_kv);
         c.t.mask = make_view(slot(3), kBool, {1, 7});
       }},
      {"packed with kv_lengths",
       [](Call& c) {
         c = packed_call(good_q, good_kv);
         c.t.kv_lengths = make_view(lengths, kI32, {2});
       }},
      {"cu_seqlens of i64",
       [](Call& c) { c = packed_call(good_q, good_kv), c.t.cu_seqlens_q.dtype = kI64; }},
      {"cu_seqlens without entries",
       [](Call& c) { c = packed_call(good_q, good_kv), c.t.cu_seqlens_q.shape[0] = 0; }},
      {"cu_seqlens of other counts",
       [](Call& c) { c = packed_call(good_q, good_kv), c.t.cu_seqlens_kv.shape[0] = 2; }},
      {"cu_seqlens that start late", [](Call& c) { c = packed_call(late, good_kv); }},
      {"cu_seqlens that fall", [](Call& c) { c = packed_call(falling, good_kv); }},
      {"cu_seqlens that end early", [](Call& c) { c = packed_call(short_end, good_kv); }},
      {"max_seqlen below a document",
       [](Call& c) { c = packed_call(good_q, good_kv), c.o.max_seqlen_q = 2; }},
      {"max_seqlen negative",
       [](Call& c) { c = packed_call(good_q, good_kv), c.o.max_seqlen_kv = -1; }},
      {"max_seqlen missing on a device",
       [](Call& c) {
         c = packed_call(good_q, good_kv);
         for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v, &c.t.cu_seqlens_q, &c.t.cu_seqlens_kv})
           view->device = {DeviceType::cuda, 0};
       }},
      {"max_seqlen too small on a device",
       [](Call& c) {
         c = packed_call(good_q, good_kv);
         for (TensorView* view : {&c.t.q, &c.t.k, &c.t.v, &c.t.cu_seqlens_q, &c.t.cu_seqlens_kv})
           view->device = {DeviceType::cuda, 0};
         c.o.max_seqlen_q = 2, c.o.max_seqlen_kv = 7;
       }},
      {"out of another shape",
       [](Call& c) {
         c.t.out = make_view(slot(4), kF32, {2, 5, 6, 16});
       }},
      {"out of another type",
       [](Call& c) {
         c.t.out = make_view(slot(4), kF16, {2, 5, 6, 8}), c.o.out_dtype = kF32;
       }},
      {"out not contiguous",
       [](Call& c) {
         c.t.out = make_view(slot(4), kF32, {2, 5, 6, 8});
         c.t.out.stride = {240, 8, 40, 1};
       }},
      {"out is v",
       [](Call& c) {
         c.t.out = make_view(slot(2), kF32, {2, 5, 6, 8});
       }},
      {"out in the gaps of a strided q",
       [](Call& c) {
         c.t.q.stride[0] = 4096;
         c.t.out = make_view(static_cast<float*>(slot(0)) + 1024, kF32, {2, 5, 6, 8});
       }},
      {"out over the mask",
       [](Call& c) {
         c.t.mask = make_view(static_cast<std::byte*>(slot(4)) + 100, kBool, {2, 7});
         c.t.out = make_view(slot(4), kF32, {2, 5, 6, 8});
       }},
      {"lse of another shape",
       [](Call& c) {
         c.t.lse = make_view(slot(5), kF32, {2, 5, 6});
       }},
      {"lse of the input type",
       [](Call& c) {
         c = call(kBF16), c.t.lse = make_view(slot(5), kBF16, {2, 6, 5});
       }},
      {"lse over out",
       [](Call& c) {
         c.t.out = make_view(slot(4), kF32, {2, 5, 6, 8});
         c.t.lse = make_view(static_cast<float*>(slot(4)) + 479, kF32, {2, 6, 5});
       }},
  };
  std::string report;
  for (const Case& c : cases) {
    Call wrong = call();
    c.change(wrong);
    const Result<Problem> p = describe(wrong.t, wrong.o);
    report += std::string(c.what) + "\n  " +
              (p ? "accepted: " + to_string(*p)
                 : std::string(name(p.error().code)) + ": " + p.error().message) +
              "\n";
  }
  golden::expect_equal("describe.txt", report);
}

}  // namespace
}  // namespace fovea
