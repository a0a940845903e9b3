#include "src/sparse/topk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fovea/attention.hpp"
#include "src/core/element.hpp"
#include "src/core/random_inputs.hpp"

namespace fovea {
namespace {

Problem problem(const std::string& text) { return parse_problem(text).value(); }

// The mean of tokens [first, first + 16) that exist, at [batch, ., head].
std::vector<double> cell(const TensorView& t, int64_t batch, int64_t head, int64_t first,
                         int64_t length) {
  std::vector<double> sum(static_cast<size_t>(t.shape[3]));
  const int64_t last = std::min(first + 16, length);
  for (int64_t i = first; i < last; ++i)
    for (int64_t d = 0; d < t.shape[3]; ++d)
      sum[static_cast<size_t>(d)] +=
          load_element(t.data, t.dtype,
                       batch * t.stride[0] + i * t.stride[1] + head * t.stride[2] + d) /
          static_cast<double>(last - first);
  return sum;
}

// The score of one pair of blocks in float64.
double score(const Problem& p, const AttentionTensors& t, const BlockTopk& options, int64_t b,
             int64_t h, int64_t row, int64_t column, int64_t length) {
  double sum = 0;
  const int64_t block = options.block_size;
  for (int64_t i = row * block; i < std::min((row + 1) * block, p.seq_q); i += 16)
    for (int64_t j = column * block; j < std::min((column + 1) * block, length); j += 16) {
      const auto q = cell(t.q, b, h, i, p.seq_q);
      const auto k = cell(t.k, b, h / (p.heads_q / p.heads_kv), j, length);
      sum += std::exp(p.effective_scale() * std::inner_product(q.begin(), q.end(), k.begin(), 0.0));
    }
  return std::log(sum);
}

TEST(BlockTopk, BudgetIsAMultipleOfEightBlocksBesideThePrefix) {
  BlockTopk options;
  options.block_size = 64;
  options.sparsity = 0.75;
  options.protected_prefix = 9 * 64;
  EXPECT_EQ(topk_count(options, 301 * 64), 80 + 9);
  EXPECT_NEAR(1 - 89.0 / 301, 0.704, 1e-3);
  options.protected_prefix = 9 * 64 - 63;  // touches the ninth block
  EXPECT_EQ(topk_count(options, 301 * 64), 80 + 9);
  options.protected_prefix = 0;
  EXPECT_EQ(topk_count(options, 301 * 64 - 5), 80);
  EXPECT_EQ(topk_count(options, 1), 1);
  EXPECT_EQ(topk_count(options, 0), 0);
  EXPECT_EQ(topk_count(options, 7 * 64), 7);
  options.sparsity = 1;
  EXPECT_EQ(topk_count(options, 100 * 64), 8);
  options.sparsity = 0;
  EXPECT_EQ(topk_count(options, 100 * 64), 100);
  options.sparsity = 0.8;
  EXPECT_EQ(topk_count(options, 40 * 64), 8) << "0.2 x 40 is 8, whatever 1 - 0.8 rounds to";
  options.protected_prefix = 1000000;
  EXPECT_EQ(topk_count(options, 40 * 64), 40);
}

TEST(BlockTopk, KeepsTheBlocksThatScoreHighest) {
  for (const char* text :
       {"f32 b2 h4 hk=2 s300 sk=1500 d24", "bf16 b1 h2 s130 sk=1281 d16",
        "f16 b1 h1 s70 sk=1100 d100", "f32 b2 h2 s200 sk=1400 d8 kvlen=1300,900",
        "f32 b1 h2 s100 sk=1300 d8 layout=bhsd", "f32 b1 h2 s1100 d8 strides=fused_qkv"}) {
    SCOPED_TRACE(text);
    const Problem p = problem(text);
    const auto inputs = make_random_inputs(p).value();
    AttentionTensors t = inputs.tensors();
    for (const int64_t prefix : {0, 100}) {
      BlockTopk options;
      options.block_size = 64;
      options.sparsity = 0.6;
      options.protected_prefix = prefix;
      const BlockMask mask = select_blocks(options, t, p, serial_executor()).value();
      // Views as [batch, seq, head, dim] for the float64 scores.
      AttentionTensors seen = t;
      if (p.layout == Layout::bhsd)
        for (TensorView* view : {&seen.q, &seen.k}) {
          std::swap(view->shape[1], view->shape[2]);
          std::swap(view->stride[1], view->stride[2]);
        }
      for (int64_t b = 0; b < p.batch; ++b) {
        const int64_t length =
            p.has_kv_lengths ? p.kv_length_values[static_cast<size_t>(b)] : p.seq_kv;
        const int64_t columns = (length + 63) / 64;
        const int64_t first = (prefix + 63) / 64;
        for (int64_t h = 0; h < p.heads_q; ++h)
          for (int64_t row = 0; row < mask.rows(); ++row) {
            const auto kept = mask.row(b, h, row);
            ASSERT_EQ(static_cast<int64_t>(kept.size()), topk_count(options, length));
            for (int64_t n = 0; n < first; ++n) EXPECT_EQ(kept[static_cast<size_t>(n)], n);
            double least = std::numeric_limits<double>::infinity();
            double most = -least;
            for (int64_t c = first; c < columns; ++c) {
              const double s = score(p, seen, options, b, h, row, c, length);
              if (std::binary_search(kept.begin(), kept.end(), static_cast<int32_t>(c)))
                least = std::min(least, s);
              else
                most = std::max(most, s);
            }
            EXPECT_GE(least, most - 1e-4) << b << ' ' << h << ' ' << row;
          }
      }
    }
  }
}

// Of 11 blocks the budget leaves none out, of 10 and 9 it keeps 8.
TEST(BlockTopk, AShorterItemMayChooseWhereTheWholeAxisDoesNot) {
  const Problem p = problem("f32 b3 h2 s300 sk=1408 d16 kvlen=1408,1280,1152");
  const auto inputs = make_random_inputs(p).value();
  BlockTopk options;
  options.sparsity = 0.25;
  const auto chosen = select_blocks(options, inputs.tensors(), p, serial_executor());
  ASSERT_TRUE(chosen.has_value()) << chosen.error().message;
  const BlockMask& mask = *chosen;
  for (int64_t b = 0; b < p.batch; ++b) {
    Problem alone = p;
    alone.batch = 1;
    alone.seq_kv = p.kv_length_values[static_cast<size_t>(b)];
    alone.has_kv_lengths = false;
    alone.kv_length_values.clear();
    alone.strides_kind = StridesKind::custom;
    AttentionTensors t = inputs.tensors();
    t.kv_lengths = {};
    for (TensorView* view : {&t.q, &t.k}) {
      view->data = static_cast<float*>(view->data) + b * view->stride[0];
      view->shape[0] = 1;
    }
    const auto found = select_blocks(options, t, alone, serial_executor());
    ASSERT_TRUE(found.has_value()) << found.error().message;
    const BlockMask& one = *found;
    EXPECT_EQ(one.min_count(), b == 0 ? 11 : 8);
    for (int64_t h = 0; h < p.heads_q; ++h)
      for (int64_t row = 0; row < mask.rows(); ++row)
        EXPECT_TRUE(std::ranges::equal(mask.row(b, h, row), one.row(0, h, row))) << b << ' ' << row;
  }
}

TEST(BlockTopk, TiesAndScoresThatCannotBeComparedGoToTheFirstBlocks) {
  const Problem p = problem("f32 b1 h1 s64 sk=1280 d8");
  const auto inputs = make_random_inputs(p).value();
  const AttentionTensors& t = inputs.tensors();
  BlockTopk options;
  options.block_size = 64;
  const std::vector<int32_t> first = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto row = [&] {
    const BlockMask mask = select_blocks(options, t, p, serial_executor()).value();
    return std::vector<int32_t>(mask.row(0, 0, 0).begin(), mask.row(0, 0, 0).end());
  };
  EXPECT_NE(row(), first);
  std::fill_n(static_cast<float*>(t.k.data), t.k.numel(), 0.F);
  EXPECT_EQ(row(), first);
  static_cast<float*>(t.k.data)[1000 * 8] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(row(), first);
}

TEST(BlockTopk, Refusals) {
  BlockTopk options;
  options.block_size = 96;
  EXPECT_EQ(validate(options).error().message,
            "block_size 96 is not supported (accepted: 64, 128)");
  options.block_size = 64;
  options.sparsity = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(validate(options).error().message, "sparsity nan is out of range (accepted: 0 to 1)");
  options.sparsity = 0.5;
  options.protected_prefix = -1;
  EXPECT_FALSE(validate(options).has_value());
  options.protected_prefix = 0;
  const Problem packed = problem("f32 b1 h1 s64 d8 docs=64:64");
  const auto inputs = make_random_inputs(packed).value();
  EXPECT_EQ(select_blocks(options, inputs.tensors(), packed, serial_executor()).error().message,
            "packed documents have no blocks to choose from");
}

}  // namespace
}  // namespace fovea
