#include "src/core/random_inputs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/core/compare.hpp"
#include "src/core/element.hpp"

namespace fovea {
namespace {

RandomInputs make(const char* text, const RandomOptions& options = {}) {
  auto problem = parse_problem(text);
  EXPECT_TRUE(problem.has_value()) << problem.error().message;
  auto inputs = make_random_inputs(*problem, options);
  EXPECT_TRUE(inputs.has_value()) << inputs.error().message;
  return std::move(inputs).value();
}

double value(const TensorView& t, int64_t position) {
  double out = 0;
  for_each_element(t, [&](int64_t at, int64_t offset) {
    if (at == position) out = load_element(t.data, t.dtype, offset);
  });
  return out;
}

TEST(RandomInputs, ValuesAreNormal) {
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  constexpr int kCount = 400000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random_normal(3, 1, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
  EXPECT_NEAR(fourth / kCount, 3, 0.06);
}

TEST(RandomInputs, TheSeedDecidesEverything) {
  const char* text = "bf16 b2 h2 s9 d8 mask=bool kvlen=5,9 seed=";
  const auto hash = [&](const char* seed) {
    return make((std::string(text) + seed).c_str()).input_hash();
  };
  EXPECT_EQ(hash("1"), hash("1"));
  EXPECT_NE(hash("1"), hash("2"));
}

TEST(RandomInputs, KnownValues) {
  EXPECT_EQ(random_bits(1, 2, 3), random_bits(1, 2, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 2, 4));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(2, 2, 3));
}

TEST(RandomInputs, StridesAreThoseOfTheProblem) {
  for (const char* text :
       {"f32 b2 h3 s5 d8", "f32 b2 h3 s5 d8 strides=fused_qkv", "f16 b2 h3 s5 d8 layout=bhsd",
        "f32 b2 h4 s5 d8 hk=2 strides=expanded", "f32 b1 h3 s5 d8 strides=bhsd_view",
        "f32 b2 h2 s3 d4 strides=custom:50,16,5/0,7,0/99,8,4"}) {
    const Problem p = *parse_problem(text);
    const RandomInputs inputs = make(text);
    const AttentionTensors& t = inputs.tensors();
    const bool bhsd = p.layout == Layout::bhsd;
    EXPECT_EQ(t.q.stride[0], p.q_strides.batch) << text;
    EXPECT_EQ(t.k.stride[bhsd ? 2 : 1], p.k_strides.seq) << text;
    EXPECT_EQ(t.v.stride[bhsd ? 1 : 2], p.v_strides.head) << text;
    for (const TensorView* view : {&t.q, &t.k, &t.v})
      for_each_element(*view, [&](int64_t, int64_t offset) {
        EXPECT_TRUE(std::isfinite(load_element(view->data, view->dtype, offset))) << text;
      });
  }
}

TEST(RandomInputs, AlignmentIsAsStatedAndNoBetter) {
  for (int alignment : {4, 8, 16, 32, 64}) {
    const std::string text = "f32 b1 h1 s3 d5 align=" + std::to_string(alignment);
    const RandomInputs inputs = make(text.c_str());
    const auto address = reinterpret_cast<uintptr_t>(inputs.tensors().q.data);
    EXPECT_EQ(address % static_cast<uintptr_t>(alignment), 0u);
    if (alignment < 64) {
      EXPECT_NE(address % static_cast<uintptr_t>(2 * alignment), 0u);
    }
  }
}

TEST(RandomInputs, KeysBehindLengthsAndPaddingArePoisoned) {
  const RandomInputs inputs = make("f32 b2 h1 s4 d3 sk=6 mask=keys kvlen=4,6 seed=5");
  const AttentionTensors& t = inputs.tensors();
  EXPECT_EQ(value(t.kv_lengths, 0), 4);
  EXPECT_EQ(value(t.kv_lengths, 1), 6);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t j = 0; j < 6; ++j) {
      const bool hidden = (b == 0 && j >= 4) || value(t.mask, b * 6 + j) == 0;
      EXPECT_EQ(std::isnan(value(t.k, (b * 6 + j) * 3)), hidden) << b << ' ' << j;
      EXPECT_EQ(std::isnan(value(t.v, (b * 6 + j) * 3 + 2)), hidden) << b << ' ' << j;
    }
}

// By the wording of the contract: whether key j is visible.
bool visible(const Problem& p, const AttentionTensors& t, int64_t b, int64_t h, int64_t i,
             int64_t j) {
  const int64_t n = p.has_kv_lengths ? static_cast<int64_t>(value(t.kv_lengths, b)) : p.seq_kv;
  const int64_t diagonal = i + n - p.seq_q;
  const int64_t right = p.causal ? 0 : p.window.right;
  if (j >= n || (right >= 0 && j > diagonal + right)) return false;
  if (p.window.left >= 0 && j < diagonal - p.window.left) return false;
  if (!t.mask.present()) return true;
  int64_t plane = p.mask.per_batch ? b : 0;
  if (p.mask.kind != MaskKind::keys) {
    plane = plane * (p.mask.per_head ? p.heads_q : 1) + (p.mask.per_head ? h : 0);
    plane = plane * (p.mask.per_query ? p.seq_q : 1) + (p.mask.per_query ? i : 0);
  }
  const double m = value(t.mask, plane * p.seq_kv + j);
  const bool additive = p.mask.dtype == kF32 || p.mask.dtype == kF16 || p.mask.dtype == kBF16;
  return additive ? m != -std::numeric_limits<double>::infinity() : m != 0;
}

TEST(RandomInputs, MasksHideSomethingButLeaveNoRowEmptyByAccident) {
  for (const char* text :
       {"f32 b2 h2 s7 d2 mask=keys", "f32 b2 h2 s7 d2 mask=causal+keys",
        "f32 b2 h2 s7 d2 sk=20 mask=bool kvlen=3,20", "f32 b2 h2 s7 d2 mask=bias maskdims=hq",
        "f32 b1 h1 s9 d2 sk=12 mask=keys window=2,1", "f32 b1 h1 s9 d2 sk=9 mask=bool window=3,-1",
        "f32 b2 h2 s7 d2 mask=causal+bool maskdims=none kvlen=7,7",
        "f32 b2 h1 s7 d2 sk=30 mask=keys maskdtype=u8 maskdims=none kvlen=9,30",
        "f32 b2 h1 s7 d2 sk=30 mask=keys maskdtype=f16 kvlen=?"})
    for (int seed = 0; seed < 20; ++seed) {
      const std::string full = std::string(text) + " seed=" + std::to_string(seed);
      SCOPED_TRACE(full);
      const Problem p = *parse_problem(full);
      RandomOptions options;
      options.hidden = 0.5;
      const RandomInputs inputs = make(full.c_str(), options);
      const AttentionTensors& t = inputs.tensors();
      for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t h = 0; h < p.heads_q; ++h)
          for (int64_t i = 0; i < p.seq_q; ++i) {
            bool some = false;
            for (int64_t j = 0; j < p.seq_kv; ++j) some = some || visible(p, t, b, h, i, j);
            EXPECT_TRUE(some) << b << ' ' << h << ' ' << i;
          }
    }
}

TEST(RandomInputs, DocumentsCoverTheTokens) {
  for (const char* text : {"f32 b1 h1 s9 d2 sk=12 layout=packed docs=4:5,0:7,5:0",
                           "f32 b1 h1 s9 d2 sk=12 layout=packed ndocs=3 maxdoc=4:6",
                           "f32 b1 h1 s9 d2 sk=12 layout=packed ndocs=3 maxdoc=3:4"})
    for (int seed = 0; seed < 10; ++seed) {
      const std::string full = std::string(text) + " seed=" + std::to_string(seed);
      const Problem p = *parse_problem(full);
      const RandomInputs inputs = make(full.c_str());
      const AttentionTensors& t = inputs.tensors();
      EXPECT_EQ(value(t.cu_seqlens_q, 0), 0);
      EXPECT_EQ(value(t.cu_seqlens_q, p.documents), 9);
      EXPECT_EQ(value(t.cu_seqlens_kv, p.documents), 12);
      for (int64_t n = 0; n < p.documents; ++n) {
        const double rows = value(t.cu_seqlens_q, n + 1) - value(t.cu_seqlens_q, n);
        EXPECT_GE(rows, 0) << full;
        EXPECT_LE(rows, static_cast<double>(p.max_document_q)) << full;
      }
    }
}

TEST(RandomInputs, GuardsSeeAStrayWrite) {
  const RandomInputs inputs = make("f32 b1 h1 s3 d5 lse=1");
  EXPECT_TRUE(inputs.output_guards_intact());
  EXPECT_TRUE(std::isnan(value(inputs.tensors().out, 7)));
  auto* out = static_cast<float*>(inputs.tensors().out.data);
  out[15] = 0;
  EXPECT_FALSE(inputs.output_guards_intact());
}

}  // namespace
}  // namespace fovea
