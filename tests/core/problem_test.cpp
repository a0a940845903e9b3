#include "fovea/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fovea {
namespace {

Problem small() {
  Problem p;
  p.batch = 2;
  p.heads_q = 6;
  p.heads_kv = 3;
  p.seq_q = 5;
  p.seq_kv = 7;
  p.head_dim = 16;
  p.dim_v = 8;
  fill_strides(p);
  return p;
}

Problem packed() {
  Problem p = small();
  p.batch = 1;
  p.layout = p.out_layout = Layout::packed;
  p.documents = 2;
  p.max_document_q = 3;
  p.max_document_kv = 7;
  p.document_values = {{3, 0}, {2, 7}};
  fill_strides(p);
  return p;
}

// The message of the refusal, without its common start.
std::string refusal(const Problem& p) {
  const Status status = validate(p);
  if (status) return "accepted";
  EXPECT_EQ(ErrorCode::invalid_problem, status.error().code);
  EXPECT_EQ(1u, status.error().reasons.size());
  EXPECT_TRUE(status.error().message.starts_with("problem: ")) << status.error().message;
  return status.error().message.substr(9);
}

template <class Change>
std::string refusal_after(Problem p, Change change) {
  change(p);
  fill_strides(p);
  return refusal(p);
}

TEST(Problem, plain_and_empty_problems_are_valid) {
  EXPECT_EQ("accepted", refusal(small()));
  EXPECT_EQ("accepted", refusal(packed()));
  for (auto member : {&Problem::batch, &Problem::seq_q, &Problem::seq_kv})
    EXPECT_EQ("accepted", refusal_after(small(), [&](Problem& p) { p.*member = 0; }));
}

TEST(Problem, packed_without_documents_is_valid_when_empty) {
  EXPECT_EQ("accepted", refusal_after(packed(), [](Problem& p) {
              p.documents = p.seq_q = p.seq_kv = p.max_document_q = p.max_document_kv = 0;
              p.document_values.clear();
            }));
}

TEST(Problem, strides_follow_the_layout) {
  Problem p = small();
  EXPECT_EQ((Strides{5 * 96, 96, 16}), p.q_strides);
  EXPECT_EQ((Strides{7 * 24, 24, 8}), p.v_strides);
  p.layout = p.out_layout = Layout::bhsd;
  fill_strides(p);
  EXPECT_EQ((Strides{7 * 48, 16, 7 * 16}), p.k_strides);
  EXPECT_EQ((Strides{0, 96, 16}), packed().q_strides);
}

TEST(Problem, strides_of_views_are_those_of_their_storage) {
  Problem p = small();
  p.strides_kind = StridesKind::bhsd_view;
  fill_strides(p);
  EXPECT_EQ((Strides{480, 16, 80}), p.q_strides);
  p.strides_kind = StridesKind::expanded;
  fill_strides(p);
  EXPECT_EQ((Strides{480, 96, 16}), p.q_strides);
  EXPECT_EQ((Strides{0, 16, 0}), p.k_strides);
  EXPECT_EQ((Strides{0, 8, 0}), p.v_strides);
  p.strides_kind = StridesKind::fused_qkv;
  p.seq_kv = 5;
  fill_strides(p);
  const int64_t width = 6 * 16 + 3 * 16 + 3 * 8;
  EXPECT_EQ((Strides{5 * width, width, 16}), p.k_strides);
  EXPECT_EQ((Strides{5 * width, width, 8}), p.v_strides);
  EXPECT_EQ("accepted", refusal(p));
}

TEST(Problem, custom_strides_are_left_alone) {
  Problem p = small();
  p.strides_kind = StridesKind::custom;
  p.q_strides = {1000, 100, 0};
  fill_strides(p);
  EXPECT_EQ((Strides{1000, 100, 0}), p.q_strides);
  EXPECT_EQ("accepted", refusal(p));
}

TEST(Problem, sizes_that_no_path_accepts_are_refused_by_name) {
  EXPECT_EQ("heads_q 6 is not a multiple of heads_kv 4 (accepted: heads_kv that divides heads_q)",
            refusal_after(small(), [](Problem& p) { p.heads_kv = 4; }));
  EXPECT_EQ("head_dim 0 is not accepted (accepted: 1 or more)",
            refusal_after(small(), [](Problem& p) { p.head_dim = 0; }));
  EXPECT_EQ("batch -1 is not accepted (accepted: 0 or more)",
            refusal_after(small(), [](Problem& p) { p.batch = -1; }));
  for (auto member : {&Problem::heads_q, &Problem::heads_kv, &Problem::dim_v})
    EXPECT_NE("accepted", refusal_after(small(), [&](Problem& p) { p.*member = 0; }));
}

TEST(Problem, sizes_beyond_64_bits_are_refused) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (auto member :
       {&Problem::batch, &Problem::seq_q, &Problem::seq_kv, &Problem::head_dim, &Problem::dim_v})
    EXPECT_NE(std::string::npos,
              refusal_after(small(), [&](Problem& p) { p.*member = huge; }).find("64 bits"));
  // Two sizes that fit alone but not together, also when an empty axis makes the tensor empty.
  EXPECT_NE(std::string::npos, refusal_after(small(), [&](Problem& p) {
                                 p.batch = int64_t{1} << 40;
                                 p.seq_q = 0;
                                 p.heads_q = p.heads_kv = int64_t{1} << 30;
                               }).find("64 bits"));
  EXPECT_EQ("accepted", refusal_after(small(), [](Problem& p) {
              p.batch = 1;
              p.heads_q = p.heads_kv = 1;
              p.seq_q = p.seq_kv = int64_t{1} << 40;
            }));
}

TEST(Problem, a_mask_beyond_64_bits_is_refused) {
  EXPECT_EQ(
      "the size of the mask in bytes does not fit in 64 bits (accepted: at most 2^63 - 1 "
      "bytes)",
      refusal_after(small(), [](Problem& p) {
        p.batch = p.heads_q = p.heads_kv = 1;
        p.seq_q = p.seq_kv = int64_t{1} << 40;
        p.mask = {MaskKind::boolean, kBool, false, false, true};
      }));
}

TEST(Problem, element_types_are_refused_by_name) {
  EXPECT_EQ("dtype f64 is not accepted (accepted: f32, f16, bf16)",
            refusal_after(small(), [](Problem& p) { p.dtype = p.out_dtype = kF64; }));
  EXPECT_EQ("out_dtype f16 is not accepted (accepted: bf16, f32)",
            refusal_after(small(), [](Problem& p) {
              p.dtype = kBF16;
              p.out_dtype = kF16;
            }));
}

TEST(Problem, strides_that_cannot_be_read_are_refused) {
  const auto custom = [](Strides q) {
    return refusal_after(small(), [&](Problem& p) {
      p.strides_kind = StridesKind::custom;
      p.q_strides = q;
    });
  };
  EXPECT_EQ("q_strides -1,96,16 is not accepted (accepted: 0 or more)", custom({-1, 96, 16}));
  EXPECT_NE(std::string::npos,
            custom({std::numeric_limits<int64_t>::max() / 2, 96, 16}).find("64 bits"));
  Problem p = small();
  p.seq_q = 6;
  EXPECT_EQ(
      "the strides are not those of strides=contig (call fill_strides() after changing sizes, "
      "or use custom)",
      refusal(p));
  EXPECT_EQ("strides=fused_qkv needs seq_kv equal to seq_q, they are 7 and 5",
            refusal_after(small(), [](Problem& q) { q.strides_kind = StridesKind::fused_qkv; }));
}

TEST(Problem, alignment_is_a_power_of_two_of_at_least_one_element) {
  for (int32_t bad : {0, -4, 2, 12, 128})
    EXPECT_NE("accepted", refusal_after(small(), [&](Problem& p) { p.alignment = bad; })) << bad;
  EXPECT_EQ("accepted", refusal_after(small(), [](Problem& p) { p.alignment = 4; }));
}

TEST(Problem, masks_have_the_types_and_axes_of_their_kind) {
  const auto mask = [](MaskTensor m) {
    return refusal_after(small(), [&](Problem& p) { p.mask = m; });
  };
  EXPECT_EQ("accepted", mask({MaskKind::keys, kI64, true, false, false}));
  EXPECT_EQ("accepted", mask({MaskKind::keys, kBF16, false, false, false}));
  EXPECT_EQ("accepted", mask({MaskKind::bias, kF16, true, true, true}));
  EXPECT_EQ("mask.dtype f32 is not accepted (accepted: bool, u8, i32, i64)",
            mask({MaskKind::boolean, kF32, true, false, true}));
  EXPECT_EQ("mask.dtype bool is not accepted (accepted: f32, f16, bf16)",
            mask({MaskKind::bias, kBool, true, false, true}));
  EXPECT_EQ("mask.dtype f64 is not accepted (accepted: bool, u8, i32, i64, f32, f16, bf16)",
            mask({MaskKind::keys, kF64, true, false, false}));
  EXPECT_NE("accepted", mask({MaskKind::keys, kBool, true, false, true}));
  EXPECT_NE("accepted", mask({MaskKind::none, kF32, false, false, false}));
}

TEST(Problem, causal_does_not_look_ahead) {
  EXPECT_EQ("window 3,1 looks ahead, causal does not (accepted with causal: 3,0 or 3,-1)",
            refusal_after(small(), [](Problem& p) {
              p.causal = true;
              p.window = {3, 1};
            }));
  EXPECT_EQ("window -2,0 is not accepted (accepted: -1 (unbounded) or more on each side)",
            refusal_after(small(), [](Problem& p) {
              p.window = {-2, 0};
            }));
}

TEST(Problem, scale_is_finite_and_positive) {
  for (double bad : {0.0, -1.0, double{INFINITY}, std::nan("")})
    EXPECT_NE("accepted", refusal_after(small(), [&](Problem& p) { p.scale = bad; })) << bad;
  EXPECT_EQ("scale 0 is not accepted (accepted: finite numbers above 0)",
            refusal_after(small(), [](Problem& p) { p.scale = 0; }));
}

TEST(Problem, kv_lengths_are_one_per_item_and_within_the_keys) {
  const auto lengths = [](std::vector<int64_t> values) {
    return refusal_after(small(), [&](Problem& p) {
      p.has_kv_lengths = true;
      p.kv_length_values = std::move(values);
    });
  };
  EXPECT_EQ("accepted", lengths({0, 7}));
  EXPECT_EQ("accepted", lengths({}));
  EXPECT_EQ("kv_lengths has 1 entries (accepted: one per batch item, 2)", lengths({3}));
  EXPECT_EQ("kv_lengths[1] is 8 (accepted: 0..7)", lengths({3, 8}));
  EXPECT_EQ("kv_lengths[0] is -1 (accepted: 0..7)", lengths({-1, 3}));
}

TEST(Problem, packed_takes_neither_masks_nor_kv_lengths_nor_batches) {
  EXPECT_NE(std::string::npos, refusal_after(packed(), [](Problem& p) {
                                 p.mask = {MaskKind::keys, kBool, true, false, false};
                               }).find("the packed layout takes no mask tensor"));
  EXPECT_NE(std::string::npos, refusal_after(packed(), [](Problem& p) {
                                 p.has_kv_lengths = true;
                               }).find("the packed layout takes no kv_lengths"));
  EXPECT_EQ("batch 2 is not accepted (accepted: 1 when packed)",
            refusal_after(packed(), [](Problem& p) { p.batch = 2; }));
  EXPECT_EQ("out_layout bshd is not accepted (accepted: packed)",
            refusal_after(packed(), [](Problem& p) { p.out_layout = Layout::bshd; }));
}

TEST(Problem, documents_add_up_to_the_totals) {
  EXPECT_EQ("the documents have 4 q tokens in total, but seq_q is 5",
            refusal_after(packed(), [](Problem& p) { p.document_values[1].seq_q = 1; }));
  EXPECT_EQ("the longest document has 2 kv tokens, but 2 documents have 7 tokens in total",
            refusal_after(packed(), [](Problem& p) {
              p.document_values.clear();
              p.max_document_kv = 2;
            }));
  EXPECT_EQ("the longest document has 6 q tokens, but 2 documents have 5 tokens in total",
            refusal_after(packed(), [](Problem& p) {
              p.document_values.clear();
              p.max_document_q = 6;
            }));
  EXPECT_EQ("max_document_q 4 is not accepted (accepted: 3)",
            refusal_after(packed(), [](Problem& p) { p.max_document_q = 4; }));
  EXPECT_EQ("documents need the packed layout, it is bshd",
            refusal_after(small(), [](Problem& p) { p.documents = 1; }));
}

TEST(Problem, sparse_patterns_can_be_printed) {
  const auto sparse = [](SparsePattern s) {
    return refusal_after(small(), [&](Problem& p) { p.sparse = s; });
  };
  EXPECT_EQ("accepted", sparse({"radial:authors", {{"decay", "1.0"}}}));
  EXPECT_NE("accepted", sparse({"", {}}));
  EXPECT_NE("accepted", sparse({"ra dial", {}}));
  EXPECT_NE("accepted", sparse({"radial", {{"decay", "1,0"}}}));
  EXPECT_NE("accepted", sparse({"radial", {{"a", "1"}, {"a", "2"}}}));
}

TEST(Problem, scale_defaults_to_the_root_of_the_logical_head_size) {
  Problem p = small();
  p.head_dim = 72;
  EXPECT_DOUBLE_EQ(0.11785113019775793, p.effective_scale());
  p.scale = 0.5;
  EXPECT_EQ(0.5, p.effective_scale());
}

TEST(Problem, flops_count_both_products) {
  EXPECT_EQ(2.0 * 5 * 7 * 6 * 2 * (16 + 8), flop_count(small()));
  Problem p = packed();
  EXPECT_EQ(2.0 * (3 * 0 + 2 * 7) * 6 * (16 + 8), flop_count(p));
  p.document_values.clear();
  EXPECT_EQ(2.0 * (5 * 7 / 2.0) * 6 * (16 + 8), flop_count(p));
}

TEST(Problem, dense_means_nothing_beyond_plain_attention) {
  EXPECT_TRUE(small().dense());
  EXPECT_FALSE(packed().dense());
  Problem p = small();
  p.causal = true;
  EXPECT_FALSE(p.dense());
  p = small();
  p.has_kv_lengths = true;
  EXPECT_FALSE(p.dense());
  p = small();
  p.sparse = SparsePattern{"radial", {}};
  EXPECT_FALSE(p.dense());
}

TEST(Problem, pieces_are_all_rows_and_stand_alone) {
  Problem p = small();
  p.pieces = {{p.seq_q - 1, 0, true}, {1, p.seq_kv, false}};
  EXPECT_TRUE(validate(p));
  p.pieces[0].rows = 0;
  EXPECT_FALSE(validate(p));
  p.pieces[0] = {p.seq_q - 1, p.seq_kv + 1, false};
  EXPECT_FALSE(validate(p));
  p.pieces = {{p.seq_q + 1, 0, true}};
  EXPECT_FALSE(validate(p));
  p.pieces = {{p.seq_q, p.seq_kv, true}};
  EXPECT_TRUE(validate(p));
  using Change = void (*)(Problem&);
  const Change changes[] = {[](Problem& q) { q.causal = true; },
                            [](Problem& q) { q.window.left = 3; },
                            [](Problem& q) { q.has_kv_lengths = true; },
                            [](Problem& q) {
                              q.sparse = SparsePattern{"radial", {}};
                            }};
  for (const Change& change : changes) {
    Problem changed = p;
    change(changed);
    const Status status = validate(changed);
    ASSERT_FALSE(status);
    EXPECT_EQ(ReasonCode::piecewise, status.error().reasons[0].code);
  }
}

TEST(Problem, hash_agrees_with_equality_and_sees_every_member) {
  const Problem base = small();
  EXPECT_EQ(hash_value(base), hash_value(small()));
  using Change = void (*)(Problem&);
  const Change changes[] = {
      [](Problem& p) { p.dtype = kF16; },
      [](Problem& p) { p.out_dtype = kF16; },
      [](Problem& p) { ++p.batch; },
      [](Problem& p) { ++p.heads_q; },
      [](Problem& p) { ++p.heads_kv; },
      [](Problem& p) { ++p.seq_q; },
      [](Problem& p) { ++p.seq_kv; },
      [](Problem& p) { ++p.head_dim; },
      [](Problem& p) { ++p.dim_v; },
      [](Problem& p) { p.layout = Layout::bhsd; },
      [](Problem& p) { p.out_layout = Layout::bhsd; },
      [](Problem& p) { p.causal = true; },
      [](Problem& p) { p.window.left = 0; },
      [](Problem& p) { p.window.right = 0; },
      [](Problem& p) { p.mask.kind = MaskKind::keys; },
      [](Problem& p) { p.mask.dtype = kU8; },
      [](Problem& p) { p.mask.per_batch = true; },
      [](Problem& p) { p.mask.per_head = true; },
      [](Problem& p) { p.mask.per_query = true; },
      [](Problem& p) { p.has_kv_lengths = true; },
      [](Problem& p) { p.lse = true; },
      [](Problem& p) { p.scale = 0.25; },
      [](Problem& p) { p.strides_kind = StridesKind::custom; },
      [](Problem& p) { ++p.q_strides.batch; },
      [](Problem& p) { ++p.k_strides.seq; },
      [](Problem& p) { ++p.v_strides.head; },
      [](Problem& p) { p.alignment = 32; },
      [](Problem& p) { p.documents = 1; },
      [](Problem& p) { p.max_document_q = 1; },
      [](Problem& p) { p.max_document_kv = 1; },
      [](Problem& p) { p.kv_length_values = {1}; },
      [](Problem& p) {
        p.document_values = {{1, 2}};
      },
      [](Problem& p) {
        p.sparse = SparsePattern{"radial", {{"a", "1"}}};
      },
      [](Problem& p) {
        p.pieces = {{1, 2, false}};
      },
      [](Problem& p) {
        p.pieces = {{1, 2, true}};
      },
      [](Problem& p) { p.seed = 1; },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    Problem changed = base;
    changes[i](changed);
    EXPECT_NE(base, changed) << i;
    EXPECT_NE(hash_value(base), hash_value(changed)) << i;
  }
}

}  // namespace
}  // namespace fovea
