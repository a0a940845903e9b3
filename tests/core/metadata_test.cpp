#include "fovea/metadata.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "fovea/attention.hpp"

namespace fovea {
namespace {

using Change = std::function<void(AttentionMetadata&)>;

AttentionMetadata with(const Change& change) {
  AttentionMetadata metadata;
  change(metadata);
  return metadata;
}

Problem problem(std::string_view text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  return parsed.value_or(Problem());
}

NormalForm form_of(std::string_view text, const AttentionMetadata& metadata = {}) {
  auto form = normalise(problem(text), metadata);
  EXPECT_TRUE(form.has_value()) << text << ": " << (form ? "" : form.error().message);
  return form.value_or(NormalForm());
}

TEST(Metadata, nothing_said_changes_nothing) {
  for (std::string_view text :
       {"f32 b2 h4 s8 d16 hk=2 sk=9", "bf16 b2 h2 s8 d16 mask=causal+keys window=3,-1",
        "f16 b1 h2 s9 d8 docs=4:5,5:4", "f32 b2 h2 s8 d16 kvlen=?", "f32 b0 h1 s0 d4 sk=0"}) {
    const Problem p = problem(text);
    const NormalForm form = form_of(text);
    EXPECT_EQ(form.problem, p);
    EXPECT_FALSE(form.drop_mask || form.kv_prefix || form.documents);
  }
}

// An unpublished mask is classified by its shape, never by its values.
TEST(Metadata, mask_mode_of_an_unpublished_mask) {
  const std::pair<const char*, MaskMode> cases[] = {
      {"f32 b2 h4 s8 d16", MaskMode::none},
      {"f32 b2 h4 s8 d16 mask=causal", MaskMode::none},
      {"f32 b2 h4 s8 d16 mask=keys", MaskMode::padding},
      {"f32 b2 h4 s8 d16 mask=keys maskdims=none", MaskMode::padding},
      {"f32 b2 h4 s8 d16 mask=keys maskdtype=f32", MaskMode::padding},
      {"f32 b2 h4 s8 d16 mask=bool maskdims=b", MaskMode::padding},
      {"f32 b2 h4 s8 d16 mask=bool", MaskMode::arbitrary},
      {"f32 b2 h4 s8 d16 mask=bias maskdims=bh", MaskMode::arbitrary},
      {"f32 b2 h4 s1 d16 sk=8 mask=bool maskdims=bq", MaskMode::padding},
      {"f32 b2 h4 s8 d16 kvlen=?", MaskMode::padding}};
  for (const auto& [text, mode] : cases) EXPECT_EQ(form_of(text).mask_mode, mode) << text;
}

TEST(Metadata, a_published_mode_stands) {
  const auto declare = [](MaskMode mode) {
    return with([=](AttentionMetadata& m) { m.mask_mode = mode; });
  };
  EXPECT_EQ(form_of("f32 b2 h4 s8 d16 mask=bool", declare(MaskMode::padding)).mask_mode,
            MaskMode::padding);
  EXPECT_EQ(form_of("f32 b2 h4 s8 d16 mask=keys", declare(MaskMode::arbitrary)).mask_mode,
            MaskMode::arbitrary);
  const NormalForm none = form_of("f32 b2 h4 s8 d16 mask=bias", declare(MaskMode::none));
  EXPECT_EQ(none.mask_mode, MaskMode::none);
  EXPECT_TRUE(none.drop_mask);
  EXPECT_EQ(to_string(none.problem), "f32 b2 h4 s8 d16");
  // Changing what is published flips the answer; nothing is remembered.
  EXPECT_EQ(form_of("f32 b2 h4 s8 d16 mask=bias", declare(MaskMode::arbitrary)).mask_mode,
            MaskMode::arbitrary);
  // A length still hides keys when the mask does not.
  EXPECT_EQ(form_of("f32 b2 h4 s8 d16 mask=keys kvlen=?", declare(MaskMode::none)).mask_mode,
            MaskMode::padding);
}

// Whatever was published of a mask says nothing of a call without one.
TEST(Metadata, a_mode_without_a_mask_is_not_checked) {
  for (MaskMode mode :
       {MaskMode::none, MaskMode::padding, MaskMode::arbitrary, MaskMode::unknown}) {
    const AttentionMetadata published = with([=](AttentionMetadata& m) { m.mask_mode = mode; });
    const NormalForm form = form_of("f32 b2 h4 s8 d16", published);
    EXPECT_EQ(form.mask_mode, MaskMode::none) << name(mode);
    EXPECT_EQ(to_string(form.problem), "f32 b2 h4 s8 d16");
    EXPECT_FALSE(form.drop_mask);
    EXPECT_EQ(form_of("f32 b2 h4 s8 d16 kvlen=?", published).mask_mode, MaskMode::padding);
  }
}

TEST(Metadata, packing_mode) {
  EXPECT_EQ(form_of("f32 b1 h1 s8 d4").packing_mode, PackingMode::none);
  EXPECT_EQ(form_of("f32 b1 h1 s8 d4 docs=3:3,5:5").packing_mode, PackingMode::multi_document);
  const AttentionMetadata padding = with([](AttentionMetadata& m) {
    m.packed_padding = PackedPadding{3, 3};
  });
  EXPECT_EQ(form_of("f32 b1 h1 s8 d4 docs=3:3,5:5", padding).packing_mode,
            PackingMode::packed_padding);
  EXPECT_EQ(form_of("f32 b1 h1 s8 d4", padding).packing_mode, PackingMode::packed_padding);
}

TEST(Metadata, packed_padding_becomes_three_documents) {
  const NormalForm form = form_of("bf16 b1 h4 s10 d8 sk=12 lse=1", with([](AttentionMetadata& m) {
                                    m.packed_padding = PackedPadding{6, 7};
                                  }));
  EXPECT_TRUE(form.documents);
  EXPECT_EQ(to_string(form.problem),
            "bf16 b1 h4 s10 d8 sk=12 layout=packed ndocs=3 maxdoc=10:12 lse=1");
  EXPECT_EQ(form.starts_q, (std::array<int32_t, 4>{0, 6, 10, 10}));
  EXPECT_EQ(form.starts_kv, (std::array<int32_t, 4>{0, 7, 7, 12}));
  // The lengths are not part of the problem: one plan serves them all.
  const NormalForm other = form_of("bf16 b1 h4 s10 d8 sk=12 lse=1", with([](AttentionMetadata& m) {
                                     m.packed_padding = PackedPadding{1, 12};
                                   }));
  EXPECT_EQ(form.problem, other.problem);
}

// Patterns and lists are over all keys, so that the valid ones become lengths.
TEST(Metadata, a_valid_length_beside_a_pattern_becomes_lengths) {
  const AttentionMetadata valid = with([](AttentionMetadata& m) { m.valid_kv_length = 5; });
  const NormalForm form = form_of("f32 b3 h1 s8 d4 sparse=radial", valid);
  EXPECT_EQ(to_string(form.problem), "f32 b3 h1 s8 d4 kvlen=? sparse=radial");
  EXPECT_EQ(form.lengths, (std::vector<int64_t>{5, 5, 5}));
  EXPECT_FALSE(form.kv_prefix.has_value());
  EXPECT_EQ(form.mask_mode, MaskMode::padding);
  ExecutionContext context;
  describe_context(form, valid, context);
  EXPECT_TRUE(context.host_lengths);
  // Nothing is hidden, nothing is said.
  const AttentionMetadata all = with([](AttentionMetadata& m) { m.valid_kv_length = 8; });
  EXPECT_TRUE(form_of("f32 b3 h1 s8 d4 sparse=radial", all).lengths.empty());
  describe_context(form_of("f32 b3 h1 s8 d4", valid), valid, context);
  EXPECT_FALSE(context.host_lengths);
}

TEST(Metadata, keys_in_their_own_type_are_stored_in_no_other) {
  for (const char* own : {"", "auto", "float"}) {
    const AttentionMetadata metadata = with([=](AttentionMetadata& m) { m.kv_cache_dtype = own; });
    const NormalForm form = form_of("f32 b1 h1 s8 d4", metadata);
    ExecutionContext context;
    context.kv_cache_dtype = "claimed";
    describe_context(form, metadata, context);
    EXPECT_EQ(context.kv_cache_dtype, "") << own;
  }
  for (const char* other : {"fp8", "mxfp8", "mxfp4"}) {
    const AttentionMetadata metadata =
        with([=](AttentionMetadata& m) { m.kv_cache_dtype = other; });
    EXPECT_EQ(form_of("f32 b1 h1 s8 d4", metadata).kv_cache_dtype, other);
  }
}

// Used tokens, and that a mask hides what is behind them only, whatever shape it has.
TEST(Metadata, a_video_layout_states_its_tokens_and_what_a_mask_hides) {
  const AttentionMetadata one = with([](AttentionMetadata& m) {
    m.video_layout.emplace();
    m.video_layout->prefix_length = 3;
    m.video_layout->grid = VideoGrid{2, 1, 4};
  });
  for (const char* text : {"f32 b1 h2 s11 d4", "f32 b1 h2 s16 d4"})
    EXPECT_EQ(form_of(text, one).used_length, 11) << text;
  AttentionMetadata told = one;
  told.video_layout->used_length = 11;
  EXPECT_EQ(form_of("f32 b1 h2 s16 d4", told).used_length, 11);
  const AttentionMetadata several = with([](AttentionMetadata& m) {
    m.video_layout.emplace();
    m.video_layout->prefix_length = 2;
    m.video_layout->used_length = 14;
    m.video_layout->spans = {{2, {1, 2, 2}, VideoRole::reference},
                             {7, {2, 1, 3}, VideoRole::target}};
  });
  EXPECT_EQ(form_of("f32 b1 h2 s16 d4", several).used_length, 14);
  EXPECT_EQ(form_of("f32 b1 h2 s16 d4").used_length, 0);

  EXPECT_EQ(form_of("f32 b1 h2 s16 d4 mask=bool", one).mask_mode, MaskMode::padding);
  EXPECT_EQ(form_of("f32 b1 h2 s16 d4 mask=bool").mask_mode, MaskMode::arbitrary);
  EXPECT_FALSE(form_of("f32 b1 h2 s16 d4 mask=bool", one).drop_mask);
  AttentionMetadata published = one;
  published.mask_mode = MaskMode::none;
  EXPECT_TRUE(form_of("f32 b1 h2 s16 d4 mask=bool", published).drop_mask);
  EXPECT_EQ(form_of("f32 b1 h2 s16 d4", one).mask_mode, MaskMode::none);
}

TEST(Metadata, strides_are_named_again_in_the_normal_form) {
  const AttentionMetadata prefix = with([](AttentionMetadata& m) { m.valid_kv_length = 5; });
  EXPECT_EQ(form_of("f32 b1 h2 s8 d4", prefix).problem.strides_kind, StridesKind::contig);
  const NormalForm batched = form_of("f32 b2 h2 s8 d4", prefix);
  EXPECT_EQ(batched.problem.strides_kind, StridesKind::custom);
  EXPECT_EQ(batched.problem.k_strides, (Strides{64, 8, 4}));
  const AttentionMetadata padding = with([](AttentionMetadata& m) {
    m.packed_padding = PackedPadding{3, 3};
  });
  EXPECT_EQ(form_of("f32 b1 h2 s8 d4 strides=fused_qkv", padding).problem.strides_kind,
            StridesKind::fused_qkv);
  EXPECT_EQ(form_of("f32 b1 h2 s8 d4 layout=bhsd outlayout=bshd", padding).problem.strides_kind,
            StridesKind::bhsd_view);
}

TEST(Metadata, spans_become_pieces) {
  const auto pieces = [](const char* text, std::vector<Span> spans,
                         std::vector<QueryRange> ranges = {}) {
    const NormalForm form = form_of(text, with([&](AttentionMetadata& m) {
                                      m.full_attn_spans = spans;
                                      m.query_ranges = ranges;
                                    }));
    const std::string words = to_string(form.problem);
    const size_t at = words.find("pieces=");
    return at == std::string::npos ? "" : words.substr(at + 7);
  };
  EXPECT_EQ(pieces("f32 b1 h1 s8 d4", {}), "8:8c");
  EXPECT_EQ(pieces("f32 b1 h1 s8 d4 mask=causal", {{2, 5}}), "2:2c,3:5,3:8c");
  EXPECT_EQ(pieces("f32 b1 h1 s8 d4", {{0, 8}}), "8:8");
  EXPECT_EQ(pieces("f32 b1 h1 s8 d4", {{0, 3}, {3, 8}}), "3:3,5:8");
  EXPECT_EQ(pieces("f32 b1 h1 s3 d4 sk=8", {{2, 6}}), "1:6,2:8c");
  EXPECT_EQ(pieces("f32 b1 h1 s4 d4 sk=8", {{2, 7}}, {{0, 2, 1}, {2, 4, 3}}), "1:2c,1:7,2:7");
  EXPECT_EQ(pieces("f32 b1 h1 s6 d4 sk=3", {{1, 2}}), "4:1c,1:2,1:3c");
  EXPECT_EQ(pieces("f32 b1 h1 s6 d4 sk=0", {}), "6:0c");
  EXPECT_EQ(pieces("f32 b1 h1 s0 d4 sk=8", {{2, 6}}), "");
}

TEST(Metadata, apply_changes_views_only) {
  std::vector<float> memory(400, 0.0f);
  AttentionTensors t;
  t.q = make_view(memory.data(), kF32, {1, 6, 2, 4});
  t.k = t.v = make_view(memory.data() + 100, kF32, {1, 9, 2, 4});
  t.out = make_view(memory.data() + 200, kF32, {1, 6, 2, 4});
  t.lse = make_view(memory.data() + 300, kF32, {1, 2, 6});
  std::vector<uint8_t> bits(9, 1);
  t.mask = make_view(bits.data(), kBool, {1, 9});
  const auto described = describe(t, {});
  ASSERT_TRUE(described.has_value());

  const auto prefix =
      normalise(*described, with([](AttentionMetadata& m) { m.valid_kv_length = 4; }));
  ASSERT_TRUE(prefix.has_value());
  const AttentionTensors cut = apply(*prefix, t);
  EXPECT_EQ(to_string(cut.k), "f32[1,4,2,4]");
  EXPECT_EQ(to_string(cut.mask), "bool[1,4]");
  EXPECT_EQ(cut.k.data, t.k.data);
  EXPECT_EQ(cut.q.shape, t.q.shape);

  AttentionTensors sparse = t;
  sparse.mask = {};
  std::vector<int32_t> lists(2, 0);
  sparse.block_counts = make_view(lists.data(), kI32, {1, 1, 1});
  sparse.block_indices = make_view(lists.data() + 1, kI32, {1, 1, 1, 1});
  const auto listed = describe(sparse, {});
  ASSERT_TRUE(listed.has_value()) << listed.error().message;
  const auto lengths =
      normalise(*listed, with([](AttentionMetadata& m) { m.valid_kv_length = 4; }));
  ASSERT_TRUE(lengths.has_value()) << lengths.error().message;
  const AttentionTensors hidden = apply(*lengths, sparse);
  EXPECT_EQ(to_string(hidden.kv_lengths), "i64[1]");
  EXPECT_EQ(hidden.kv_lengths.data, lengths->lengths.data());
  EXPECT_EQ(hidden.k.shape, t.k.shape);

  const auto padding = normalise(*described, with([](AttentionMetadata& m) {
    m.packed_padding = PackedPadding{5, 7};
    m.mask_mode = MaskMode::padding;
  }));
  ASSERT_TRUE(padding.has_value()) << padding.error().message;
  const AttentionTensors packed = apply(*padding, t);
  EXPECT_EQ(to_string(packed.q), "f32[6,2,4]");
  EXPECT_EQ(to_string(packed.lse), "f32[2,6]");
  EXPECT_FALSE(packed.mask.present());
  EXPECT_EQ(packed.cu_seqlens_q.data, padding->starts_q.data());
}

struct Contradiction {
  const char* problem;
  Change change;
  const char* message;  // behind "attention: metadata "
};

TEST(Metadata, contradictions_name_their_field) {
  const Contradiction cases[] = {
      {"f32 b1 h1 s8 d4 mask=keys", [](auto& m) { m.mask_mode = MaskMode::unknown; },
       "mask_mode is unknown (accepted: none, padding, arbitrary; leave it out when not known)"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.valid_kv_length = 9; },
       "valid_kv_length is 9 (accepted: 0..8)"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.valid_kv_length = -1; },
       "valid_kv_length is -1 (accepted: 0..8)"},
      {"f32 b1 h1 s8 d4 sparse=radial",
       [](auto& m) {
         m.packed_padding = PackedPadding{3, 3};
       },
       "packed_padding is given beside a sparse pattern (accepted: dense attention), cut the "
       "tensors to the valid tokens"},
      {"f32 b1 h1 s8 d4 kvlen=?", [](auto& m) { m.valid_kv_length = 3; },
       "valid_kv_length is 3 beside kv_lengths (accepted: one of the two)"},
      {"f32 b1 h1 s8 d4 layout=packed", [](auto& m) { m.valid_kv_length = 3; },
       "valid_kv_length is 3 for packed documents (accepted: none: documents have lengths)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 4};
         m.valid_kv_length = 5;
       },
       "valid_kv_length is 5 (accepted: packed_padding.kv_length, 4)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.packed_padding = PackedPadding{9, 4};
       },
       "packed_padding.q_length is 9 (accepted: 0..8)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 9};
       },
       "packed_padding.kv_length is 9 (accepted: 0..8)"},
      {"f32 b2 h1 s8 d4",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 4};
       },
       "packed_padding is given for a batch of 2 (accepted: batch 1)"},
      {"f32 b1 h1 s8 d4 layout=bhsd",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 4};
       },
       "packed_padding is given with output layout bhsd (accepted: bshd)"},
      {"f32 b1 h1 s8 d4 mask=keys",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 4};
       },
       "packed_padding is given beside a mask that is not declared to be padding (accepted: "
       "mask_mode padding or none, or no mask)"},
      {"f32 b1 h1 s8 d4 kvlen=4",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 4};
       },
       "packed_padding is given beside kv_lengths (accepted: one of the two)"},
      {"f32 b1 h1 s9 d4 docs=3:3,3:3,3:3",
       [](auto& m) {
         m.packed_padding = PackedPadding{3, 3};
       },
       "packed_padding is given for 3 documents (accepted: 1 or 2: the tokens and the padding)"},
      {"f32 b1 h1 s8 d4 docs=3:3,5:5",
       [](auto& m) {
         m.packed_padding = PackedPadding{4, 3};
       },
       "packed_padding is 4 and 3 (accepted: the first document, 3 and 3)"},
      {"f32 b1 h1 s8 d4 docs=3:3,5:5",
       [](auto& m) {
         m.packed_padding = PackedPadding{3, 4};
       },
       "packed_padding is 3 and 4 (accepted: the first document, 3 and 3)"},
      {"f32 b1 h1 s0 d4 sk=0 layout=packed ndocs=0 maxdoc=0:0",
       [](auto& m) {
         m.packed_padding = PackedPadding{0, 0};
       },
       "packed_padding is given for 0 documents (accepted: 1 or 2: the tokens and the padding)"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.protected_kv_prefix = 9; },
       "protected_kv_prefix is 9 (accepted: 0..8)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.protected_kv_prefix = 5;
         m.packed_padding = PackedPadding{8, 4};
       },
       "protected_kv_prefix is 5 (accepted: 0..4)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.protected_kv_prefix = 6;
         m.valid_kv_length = 5;
       },
       "protected_kv_prefix is 6 (accepted: 0..5)"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.kv_cache_dtype = "int3"; },
       "kv_cache_dtype is 'int3' (accepted: auto, float, fp8, mxfp8, mxfp4)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.query_ranges = {{0, 8, 0}};
       },
       "query_ranges is given without full_attn_spans (accepted: full_attn_spans, which may be "
       "empty)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans = std::vector<Span>{{4, 4}};
       },
       "full_attn_spans[0] is [4, 4) (accepted: spans of 1 key or more in 0..8, in order, apart)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans = std::vector<Span>{{4, 9}};
       },
       "full_attn_spans[0] is [4, 9) (accepted: spans of 1 key or more in 0..8, in order, apart)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans = std::vector<Span>{{0, 5}, {4, 8}};
       },
       "full_attn_spans[1] is [4, 8) (accepted: spans of 1 key or more in 5..8, in order, apart)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans.emplace();
         m.query_ranges = {{0, 3, 0}, {4, 8, 1}};
       },
       "query_ranges[1] is [4, 8) at 1 (accepted: rows from 3 to at most 8 at positions 0..8)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans.emplace();
         m.query_ranges = {{0, 3, 0}};
       },
       "query_ranges is for 3 rows (accepted: all 8 rows)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.full_attn_spans.emplace();
         m.query_ranges = {{0, 8, 1}};
       },
       "query_ranges[0] is [0, 8) at 1 (accepted: rows from 0 to at most 8 at positions 0..8)"},
      {"f32 b1 h1 s8 d4 mask=bool",
       [](auto& m) {
         m.mask_mode = MaskMode::arbitrary;
         m.video_layout.emplace().grid = VideoGrid{2, 2, 2};
       },
       "video_layout is given beside an arbitrary mask (accepted: a mask that hides padding behind "
       "the video only)"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.video_layout.emplace(); },
       "video_layout is without a video (accepted: one of grid and spans)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout = VideoLayout{0, VideoGrid{1, 2, 2}, 4, {{0, {1, 2, 2}, {}}}};
       },
       "video_layout is one grid and several spans (accepted: one of grid and spans)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().grid = VideoGrid{2, 0, 2};
       },
       "video_layout.grid is 2x0x2 (accepted: sizes above 0)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().grid = VideoGrid{3, 3, 1};
       },
       "video_layout is 9 used tokens (accepted: at most the 8 keys that are seen)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().grid = VideoGrid{2, 2, 2};
         m.valid_kv_length = 7;
       },
       "video_layout is 8 used tokens (accepted: at most the 7 keys that are seen)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().grid = VideoGrid{1, 2, 2};
         m.video_layout->used_length = 5;
       },
       "video_layout.used_length is 5 (accepted: 4, the prefix and the grid, or nothing)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().spans = {{0, {1, 2, 2}, {}}, {3, {1, 1, 1}, {}}};
       },
       "video_layout.spans[1] is at 3 (accepted: 4 or behind: in order, apart)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout = VideoLayout{3, {}, 8, {{2, {1, 2, 2}, {}}}};
       },
       "video_layout.spans[0] is at 2 (accepted: 3 or behind: in order, apart)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout = VideoLayout{0, {}, 8, {{0, {1, 0, 2}, {}}}};
       },
       "video_layout.spans[0] is 1x0x2 (accepted: sizes above 0)"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.video_layout.emplace().spans = {{0, {1, 2, 2}, {}}};
       },
       "video_layout.used_length is 0 (accepted: 4 or more, the end of the last video)"},
  };
  for (const Contradiction& c : cases) {
    const auto form = normalise(problem(c.problem), with(c.change));
    ASSERT_FALSE(form.has_value()) << c.message;
    EXPECT_EQ(form.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(form.error().message, std::string("attention: metadata ") + c.message);
    ASSERT_FALSE(form.error().reasons.empty());
    EXPECT_EQ(form.error().reasons[0].code, ReasonCode::metadata);
  }
}

// Spans say what every row sees: nothing but a mask tensor may hide more.
TEST(Metadata, spans_stand_alone) {
  const std::tuple<const char*, Change, const char*> cases[] = {
      {"f32 b1 h1 s8 d4 docs=4:4,4:4", [](auto&) {}, "packed documents"},
      {"f32 b1 h1 s8 d4",
       [](auto& m) {
         m.packed_padding = PackedPadding{8, 8};
       },
       "packed_padding"},
      {"f32 b1 h1 s8 d4 window=2,2", [](auto&) {}, "a window"},
      {"f32 b1 h1 s8 d4 kvlen=?", [](auto&) {}, "kv_lengths"},
      {"f32 b1 h1 s8 d4", [](auto& m) { m.valid_kv_length = 8; }, "valid_kv_length"},
      {"f32 b1 h1 s8 d4 sparse=radial", [](auto&) {}, "a sparse pattern"}};
  for (const auto& [text, change, beside] : cases) {
    AttentionMetadata metadata = with(change);
    metadata.full_attn_spans = std::vector<Span>{{2, 5}};
    const auto form = normalise(problem(text), metadata);
    ASSERT_FALSE(form.has_value()) << beside;
    EXPECT_EQ(form.error().message, std::string("attention: metadata full_attn_spans is given "
                                                "beside ") +
                                        beside +
                                        " (accepted: a mask tensor at most), hide keys with a "
                                        "mask");
  }
}

TEST(Metadata, all_contradictions_are_reported_at_once) {
  const auto form = normalise(problem("f32 b1 h1 s8 d4 mask=keys"), with([](AttentionMetadata& m) {
                                m.valid_kv_length = 99;
                                m.mask_mode = MaskMode::unknown;
                                m.protected_kv_prefix = -1;
                              }));
  ASSERT_FALSE(form.has_value());
  EXPECT_EQ(form.error().reasons.size(), 3u);
}

TEST(Metadata, wild_numbers_are_refused_without_overflow) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (int64_t wild : {kLeast, kMost}) {
    const Change changes[] = {[=](AttentionMetadata& m) { m.valid_kv_length = wild; },
                              [=](AttentionMetadata& m) {
                                m.packed_padding = PackedPadding{wild, wild};
                              },
                              [=](AttentionMetadata& m) {
                                m.full_attn_spans = std::vector<Span>{{wild, kMost}};
                              },
                              [=](AttentionMetadata& m) {
                                m.full_attn_spans.emplace();
                                m.query_ranges = {{wild, kMost, kLeast}};
                              },
                              [=](AttentionMetadata& m) {
                                m.full_attn_spans.emplace();
                                m.query_ranges = {{0, 8, wild}};
                              },
                              [=](AttentionMetadata& m) { m.protected_kv_prefix = wild; },
                              [=](AttentionMetadata& m) {
                                m.video_layout.emplace().grid = VideoGrid{kMost, kMost, kMost};
                              },
                              [=](AttentionMetadata& m) {
                                m.video_layout.emplace().spans = {{wild, {kMost, 2, 2}, {}}};
                              },
                              [=](AttentionMetadata& m) {
                                m.video_layout.emplace().grid = VideoGrid{1, 1, 1};
                                m.video_layout->prefix_length = wild;
                              }};
    for (const Change& change : changes)
      EXPECT_FALSE(normalise(problem("f32 b1 h1 s8 d4"), with(change)).has_value());
  }
}

TEST(Metadata, the_context_says_what_the_normal_form_says) {
  const AttentionMetadata metadata = with([](AttentionMetadata& m) {
    m.full_attn_spans.emplace();
    m.kv_cache_dtype = "fp8";
    m.npu_attn_varlen = true;
    m.laser_input_scale = 0.5;
    m.protected_kv_prefix = 3;
    m.video_layout = VideoLayout{2, VideoGrid{1, 2, 3}, 0, {}};
  });
  const NormalForm form = form_of("bf16 b1 h1 s8 d4 mask=keys", metadata);
  ExecutionContext context;
  context.mask_mode = MaskMode::none;
  context.kernel_variant = "claimed";
  context.causal = true;
  describe_context(form, metadata, context);
  EXPECT_EQ(context.causal, false);
  EXPECT_EQ(context.mask_mode, MaskMode::padding);
  EXPECT_TRUE(context.piecewise);
  EXPECT_EQ(context.dtype, kBF16);
  EXPECT_EQ(context.kv_cache_dtype, "fp8");
  EXPECT_TRUE(context.npu_attn_varlen);
  EXPECT_EQ(context.laser_input_scale, 0.5);
  EXPECT_EQ(context.protected_kv_prefix, 3);
  EXPECT_EQ(context.video_layout, metadata.video_layout);
  describe_context(form_of("bf16 b1 h1 s8 d4 mask=causal"), {}, context);
  EXPECT_EQ(context.causal, true);
  // Paged storage has a type of its own.
  ExecutionContext paged;
  paged.paged_kv = true;
  paged.kv_cache_dtype = "mxfp8";
  describe_context(form, metadata, paged);
  EXPECT_EQ(paged.kv_cache_dtype, "mxfp8");
}

}  // namespace
}  // namespace fovea
