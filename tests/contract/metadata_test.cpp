// What metadata says, a mask tensor that says the same would say too: every form of metadata is
// compared with the float64 oracle under an explicit mask, and in closed form.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

FOVEA_CONTRACT_SUITE(ContractMetadata);

using Visible = std::function<bool(int64_t b, int64_t i, int64_t j)>;

Answer attend_with(const Target& target, const Inputs& inputs, const AttentionMetadata& metadata,
                   CallOptions options = {}) {
  options.metadata = &metadata;
  return attend(target, inputs, options);
}

// The answer equals the oracle's for the same tensors under an explicit mask, whose other keys are
// hidden too where `inputs` has a mask or lengths.
void expect_sees(const Target& target, const Inputs& inputs, const AttentionMetadata& metadata,
                 const Visible& visible, CallOptions options = {}) {
  const Answer answer = attend_with(target, inputs, metadata, options);
  if (!answer.ran) return;
  const Problem& p = answer.problem;
  Inputs explicit_mask = inputs;
  explicit_mask.kv_lengths = Tensor();
  explicit_mask.mask = Tensor(kBool, {p.batch, 1, p.seq_q, p.seq_kv});
  explicit_mask.mask.fill(
      [&](int64_t b, int64_t, int64_t i, int64_t j) { return visible(b, i, j) ? 1.0 : 0.0; });
  AttentionTensors tensors = explicit_mask.tensors();
  CallOptions plain = options;
  plain.metadata = nullptr;
  plain.is_causal = false;
  plain.window = {};
  plain.return_lse = true;
  const auto problem = describe(tensors, plain);
  ASSERT_TRUE(problem.has_value()) << problem.error().message;
  const auto oracle = backends::reference::compute_oracle(*problem, tensors, *target.executor);
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  tensors.out = answer.out.view();
  tensors.lse = answer.lse.view();
  const auto agreement =
      backends::reference::compare_to_oracle(*problem, tensors, *oracle, DataKind::random);
  EXPECT_TRUE(agreement.pass) << "relative L2 " << agreement.out.rel_l2 << ", LSE "
                              << agreement.lse.max_abs << ", non-finite mismatches "
                              << agreement.out.nonfinite_mismatches << " and "
                              << agreement.lse.nonfinite_mismatches;
}

// Keys that no row sees hold NaN: whoever reads one shows it.
void poison_keys(Inputs& inputs, int64_t from, int64_t to) {
  const TensorView& k = inputs.k.view();
  for (int64_t b = 0; b < k.shape[0]; ++b)
    for (int64_t j = from; j < to; ++j)
      for (int64_t h = 0; h < k.shape[2]; ++h)
        for (int64_t d = 0; d < k.shape[3]; ++d) {
          inputs.k.set(kNaN, b, j, h, d);
          inputs.v.set(kNaN, b, j, h, d);
        }
}

TEST_P(ContractMetadata, PublishedNoOpMaskIsNotRead) {
  const Shape shape{.batch = 2, .seq_q = 5, .seq_kv = 19, .heads_q = 2, .heads_kv = 2};
  AttentionMetadata metadata;
  metadata.mask_mode = MaskMode::none;
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, shape);
    const Answer plain = attend(GetParam(), in);
    // The masks hide everything, or hold what no mask may hold.
    in.mask = Tensor(kBool, {2, 19}).fill(0.0);
    expect_same_bits(plain, attend_with(GetParam(), in, metadata));
    in.mask = Tensor(kF32, {1, 1, 5, 19}).fill(kNaN);
    expect_same_bits(plain, attend_with(GetParam(), in, metadata));
    in.mask = Tensor(kI64, {2, 1, 5, 19}).fill(7.0);
    expect_same_bits(plain, attend_with(GetParam(), in, metadata));
  }
}

TEST_P(ContractMetadata, DeclaredPaddingAndArbitraryMasksAreAppliedAlike) {
  const Shape shape{.batch = 2, .seq_q = 7, .seq_kv = 24, .heads_q = 2, .heads_kv = 2};
  Inputs in = random_inputs(kF32, shape);
  in.mask = Tensor(kBool, {2, 24}).fill([](int64_t b, int64_t j, int64_t, int64_t) {
    return j % 5 != b ? 1.0 : 0.0;
  });
  const Answer undeclared = attend(GetParam(), in);
  for (MaskMode mode : {MaskMode::padding, MaskMode::arbitrary}) {
    AttentionMetadata metadata;
    metadata.mask_mode = mode;
    expect_same_bits(undeclared, attend_with(GetParam(), in, metadata));
  }
}

TEST_P(ContractMetadata, ValidLengthIsAPrefixOfTheKeys) {
  AttentionMetadata metadata;
  for (DType dtype : kFloatTypes)
    for (int64_t length : {0, 1, 13, 40}) {
      metadata.valid_kv_length = length;
      const Shape shape{.batch = 2, .seq_q = 9, .seq_kv = 40, .heads_q = 4, .heads_kv = 2};
      Inputs in = random_inputs(dtype, shape);
      poison_keys(in, length, 40);
      expect_sees(GetParam(), in, metadata,
                  [&](int64_t, int64_t, int64_t j) { return j < length; });
      Inputs index = index_inputs(dtype, shape);
      expect_rows(attend_with(GetParam(), index, metadata), [&](int64_t, int64_t, int64_t) {
        return length == 0 ? 0.0 : static_cast<double>(length - 1) / 2;
      });
    }
}

TEST_P(ContractMetadata, ValidLengthMovesTheDiagonalAndCutsTheMask) {
  const Shape shape{.batch = 2, .seq_q = 8, .seq_kv = 30, .heads_q = 2, .heads_kv = 2};
  Inputs in = random_inputs(kF32, shape);
  in.mask = Tensor(kBool, {2, 1, 1, 30}).fill([](int64_t b, int64_t, int64_t, int64_t j) {
    return (j + b) % 4 != 0 ? 1.0 : 0.0;
  });
  poison_keys(in, 21, 30);
  AttentionMetadata metadata;
  metadata.valid_kv_length = 21;
  CallOptions options;
  options.is_causal = true;
  options.window = {6, -1};
  expect_sees(
      GetParam(), in, metadata,
      [](int64_t b, int64_t i, int64_t j) {
        return j < 21 && (j + b) % 4 != 0 && j <= i + 13 && j >= i + 13 - 6;
      },
      options);
}

TEST_P(ContractMetadata, ValidLengthInTheOtherLayout) {
  const Shape shape{.batch = 3, .seq_q = 4, .seq_kv = 11, .heads_q = 2, .heads_kv = 2};
  const Inputs in = random_inputs(kF32, shape);
  Inputs swapped;
  const auto swap = [](const Tensor& t) {
    const auto& n = t.view().shape;
    return Tensor(kF32, {n[0], n[2], n[1], n[3]})
        .fill([&](int64_t b, int64_t h, int64_t s, int64_t d) { return t.at(b, s, h, d); });
  };
  swapped.q = swap(in.q);
  swapped.k = swap(in.k);
  swapped.v = swap(in.v);
  AttentionMetadata metadata;
  metadata.valid_kv_length = 5;
  CallOptions options;
  options.input_layout = Layout::bhsd;
  options.output_layout = Layout::bshd;
  const Answer by_heads = attend_with(GetParam(), swapped, metadata, options);
  const Answer by_tokens = attend_with(GetParam(), in, metadata);
  expect_same_bits(by_heads, by_tokens);
}

TEST_P(ContractMetadata, PackedPaddingIsolatesTheTokensFromThePadding) {
  for (DType dtype : kFloatTypes)
    for (const PackedPadding& lengths :
         {PackedPadding{37, 37}, PackedPadding{21, 50}, PackedPadding{0, 10}, PackedPadding{5, 0},
          PackedPadding{64, 80}}) {
      const Shape shape{.seq_q = 64, .seq_kv = 80, .heads_q = 4, .heads_kv = 2};
      Inputs in = random_inputs(dtype, shape);
      poison_keys(in, lengths.kv_length, 80);
      AttentionMetadata metadata;
      metadata.packed_padding = lengths;
      const Visible visible = [&](int64_t, int64_t i, int64_t j) {
        return i < lengths.q_length && j < lengths.kv_length;
      };
      expect_sees(GetParam(), in, metadata, visible);
      // Queries of the padding see nothing, whatever they hold.
      const Answer answer = attend_with(GetParam(), in, metadata);
      if (!answer.ran) return;
      for (int64_t i = lengths.q_length; i < 64; ++i) {
        EXPECT_EQ(answer.out.at(0, i, 3, 0), 0.0);
        EXPECT_EQ(answer.lse.at(0, 3, i), -kInf);
      }
    }
}

TEST_P(ContractMetadata, PackedPaddingReplacesADeclaredMaskAndKeepsTheDiagonal) {
  const Shape shape{.seq_q = 12, .seq_kv = 12, .heads_q = 2, .heads_kv = 2};
  Inputs in = random_inputs(kF32, shape);
  in.mask = Tensor(kBool, {1, 12}).fill([](int64_t, int64_t j, int64_t, int64_t) {
    return j < 9 ? 1.0 : 0.0;
  });
  AttentionMetadata metadata;
  metadata.packed_padding = PackedPadding{9, 9};
  metadata.mask_mode = MaskMode::padding;
  CallOptions options;
  options.is_causal = true;
  expect_sees(
      GetParam(), in, metadata,
      [](int64_t, int64_t i, int64_t j) { return i < 9 && j < 9 && j <= i; }, options);
}

TEST_P(ContractMetadata, SeveralDocumentsEqualOneCallEach) {
  // Published padding of documents that the caller has cut itself.
  Inputs in;
  in.q = Tensor(kF32, {12, 2, 8}).random(1);
  in.k = Tensor(kF32, {12, 2, 8}).random(2);
  in.v = Tensor(kF32, {12, 2, 8}).random(3);
  in.cu_seqlens_q = Tensor(kI32, {3}).fill({0, 7, 12});
  in.cu_seqlens_kv = Tensor(kI32, {3}).fill({0, 9, 12});
  CallOptions options;
  options.input_layout = Layout::packed;
  const Answer plain = attend(GetParam(), in, options);
  AttentionMetadata metadata;
  metadata.packed_padding = PackedPadding{7, 9};
  expect_same_bits(plain, attend_with(GetParam(), in, metadata, options));
}

// The rule of mixed attention as the definition words it.
bool spans_show(const std::vector<Span>& spans, int64_t position, int64_t key) {
  for (const Span& span : spans)
    if (position >= span.begin && position < span.end) return key < span.end;
  return key <= position;
}

TEST_P(ContractMetadata, SpansSeeEachOtherAndEverythingBefore) {
  const std::vector<std::vector<Span>> lists = {
      {}, {{0, 5}}, {{3, 9}, {9, 14}}, {{0, 40}}, {{6, 7}, {20, 33}, {39, 40}}};
  for (DType dtype : kFloatTypes)
    for (int64_t seq_q : {1, 17, 40})
      for (const std::vector<Span>& spans : lists) {
        const Shape shape{.batch = 2, .seq_q = seq_q, .seq_kv = 40, .heads_q = 4, .heads_kv = 2};
        AttentionMetadata metadata;
        metadata.full_attn_spans = spans;
        expect_sees(
            GetParam(), random_inputs(dtype, shape), metadata,
            [&](int64_t, int64_t i, int64_t j) { return spans_show(spans, i + 40 - seq_q, j); });
      }
}

TEST_P(ContractMetadata, SpansInClosedForm) {
  // Positions 0..5: causal 0 1, full 2..4, causal 5.
  AttentionMetadata metadata;
  metadata.full_attn_spans = std::vector<Span>{{2, 5}};
  const Inputs in = index_inputs(kF32, {.seq_q = 6, .seq_kv = 6});
  const double expected[] = {0, 0.5, 2, 2, 2, 2.5};
  const Answer answer = attend_with(GetParam(), in, metadata);
  expect_rows(answer, [&](int64_t, int64_t i, int64_t) { return expected[i]; });
  const double keys[] = {1, 2, 5, 5, 5, 6};
  expect_lse(answer, [&](int64_t, int64_t i, int64_t) { return std::log(keys[i]); });
}

TEST_P(ContractMetadata, SpansWithMoreQueriesThanKeys) {
  const Shape shape{.seq_q = 9, .seq_kv = 6, .heads_q = 2, .heads_kv = 2};
  AttentionMetadata metadata;
  metadata.full_attn_spans = std::vector<Span>{{1, 4}};
  expect_sees(GetParam(), random_inputs(kF32, shape), metadata, [&](int64_t, int64_t i, int64_t j) {
    return spans_show(*metadata.full_attn_spans, i - 3, j);
  });
}

TEST_P(ContractMetadata, QueryRangesPlaceTheRowsOfAShard) {
  const Shape shape{.batch = 2, .seq_q = 20, .seq_kv = 64, .heads_q = 2, .heads_kv = 2};
  AttentionMetadata metadata;
  metadata.full_attn_spans = std::vector<Span>{{10, 22}, {30, 50}};
  metadata.query_ranges = {{0, 6, 18}, {6, 7, 0}, {7, 20, 45}};
  const auto position = [](int64_t i) { return i < 6 ? 18 + i : i < 7 ? 0 : 45 + i - 7; };
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, shape);
    poison_keys(in, 58, 64);
    expect_sees(GetParam(), in, metadata, [&](int64_t, int64_t i, int64_t j) {
      return spans_show(*metadata.full_attn_spans, position(i), j);
    });
  }
}

TEST_P(ContractMetadata, SpansAndMasksIntersect) {
  const Shape shape{.batch = 2, .seq_q = 33, .seq_kv = 33, .heads_q = 2, .heads_kv = 2};
  AttentionMetadata metadata;
  metadata.full_attn_spans = std::vector<Span>{{4, 20}};
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, shape);
    for (bool per_row : {false, true}) {
      const auto shown = [&](int64_t b, int64_t i, int64_t j) {
        return (b + (per_row ? i : 0) + j) % 3 != 0;
      };
      in.mask = Tensor(kBool, {2, 1, per_row ? 33 : 1, 33});
      in.mask.fill(
          [&](int64_t b, int64_t, int64_t i, int64_t j) { return shown(b, i, j) ? 1.0 : 0.0; });
      expect_sees(GetParam(), in, metadata, [&](int64_t b, int64_t i, int64_t j) {
        return shown(b, i, j) && spans_show(*metadata.full_attn_spans, i, j);
      });
    }
  }
}

TEST_P(ContractMetadata, HiddenKeysOfSpansMayHoldAnything) {
  // Every key past the diagonal of the row that is checked is NaN; blocks end inside vectors.
  for (DType dtype : kFloatTypes)
    for (int64_t end : {1, 2, 7, 16, 31, 33}) {
      const Shape shape{.seq_q = 3, .seq_kv = 70, .heads_q = 2, .heads_kv = 2, .head_dim = 16};
      Inputs in = random_inputs(dtype, shape);
      poison_keys(in, end, 70);
      AttentionMetadata metadata;
      metadata.full_attn_spans = std::vector<Span>{{0, end}};
      metadata.query_ranges = {{0, 1, 0}, {1, 2, end - 1}, {2, 3, 0}};
      expect_sees(GetParam(), in, metadata, [&](int64_t, int64_t, int64_t j) { return j < end; });
    }
}

TEST_P(ContractMetadata, VideoLayoutAndProtectedPrefixChangeNoDenseResult) {
  const Shape shape{.seq_q = 30, .seq_kv = 30, .heads_q = 2, .heads_kv = 2};
  Inputs in = random_inputs(kF32, shape);
  in.mask = Tensor(kBool, {1, 30}).fill([](int64_t, int64_t j, int64_t, int64_t) {
    return j < 28 ? 1.0 : 0.0;
  });
  AttentionMetadata metadata;
  metadata.protected_kv_prefix = 4;
  metadata.video_layout.emplace();
  metadata.video_layout->prefix_length = 4;
  metadata.video_layout->grid = VideoGrid{2, 3, 4};
  expect_same_bits(attend(GetParam(), in), attend_with(GetParam(), in, metadata));
}

}  // namespace
}  // namespace fovea::contract
