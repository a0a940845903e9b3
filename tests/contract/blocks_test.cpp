// Block lists that come with the call.
#include <cmath>
#include <limits>
#include <string>

#include "fovea/sparse.hpp"
#include "src/backends/instance.hpp"
#include "tests/contract/harness.hpp"
#include "tests/contract/merge.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_BLOCK_SUITE(ContractBlocks);

constexpr int32_t kSizes[] = {64, 128};

// Blocks that are on with probability `percent`, and none in every fifth row.
BlockMask random_mask(const BlockMaskShape& shape, uint64_t seed, uint64_t percent) {
  const auto columns = static_cast<uint64_t>(shape.columns());
  const auto rows = static_cast<uint64_t>(shape.batch * shape.heads * shape.rows());
  std::vector<uint8_t> matrix(rows * columns);
  for (uint64_t n = 0; n < matrix.size(); ++n)
    matrix[n] = n / columns % 5 != 4 && random_bits(seed, 5, n) % 100 < percent ? 1 : 0;
  return BlockMask::from_matrix(shape, matrix).value();
}

void give(const BlockMask& mask, Inputs& in, CallOptions& options) {
  const BlockMaskShape& s = mask.shape();
  options.block_q = s.block_q;
  options.block_kv = s.block_kv;
  const auto tensor = [](std::span<const int32_t> values, const std::vector<int64_t>& shape) {
    Tensor out(kI32, shape);
    std::copy(values.begin(), values.end(), static_cast<int32_t*>(out.view().data));
    return out;
  };
  in.block_counts = tensor(mask.counts(), {s.batch, s.heads, mask.rows()});
  in.block_indices = tensor(mask.indices(), {s.batch, s.heads, mask.rows(), mask.max_count()});
}

TEST_P(ContractBlocks, ListsHideWhatTheyDoNotName) {
  const Shape shape{.batch = 2,
                    .seq_q = 333,
                    .seq_kv = 517,
                    .heads_q = 4,
                    .heads_kv = 2,
                    .head_dim = 64,
                    .dim_v = 40};
  for (const int32_t block_q : kSizes)
    for (const int32_t block_kv : kSizes)
      for (const auto& [batch, heads] : {std::pair<int64_t, int64_t>(1, 1), {2, 1}, {1, 4}, {2, 4}})
        for (const uint64_t percent : {30, 100}) {
          SCOPED_TRACE(std::to_string(block_q) + " x " + std::to_string(block_kv) + ", " +
                       std::to_string(batch) + " x " + std::to_string(heads));
          Inputs in = random_inputs(GetParam().dtype, shape);
          CallOptions options;
          give(random_mask({333, 517, block_q, block_kv, batch, heads}, 7, percent), in, options);
          expect_agrees(GetParam(), in, options);
        }
}

TEST_P(ContractBlocks, LengthsHideKeysInsideListedBlocks) {
  for (const int32_t block_q : kSizes)
    for (const int32_t block_kv : kSizes) {
      Inputs in = random_inputs(GetParam().dtype, {.batch = 4,
                                                   .seq_q = 200,
                                                   .seq_kv = 390,
                                                   .heads_q = 2,
                                                   .heads_kv = 1,
                                                   .head_dim = 128,
                                                   .dim_v = 128});
      in.kv_lengths = Tensor(kI32, {4}).fill({0, 1, 200, 390});
      for (int64_t b = 0; b < 4; ++b)
        for (auto j = static_cast<int64_t>(in.kv_lengths.at(b)); j < 390; ++j)
          for (int64_t d = 0; d < 128; ++d) {
            in.k.set(std::numeric_limits<double>::quiet_NaN(), b, j, 0, d);
            in.v.set(std::numeric_limits<double>::quiet_NaN(), b, j, 0, d);
          }
      CallOptions options;
      give(random_mask({200, 390, block_q, block_kv, 4, 2}, 3, 60), in, options);
      expect_agrees(GetParam(), in, options);
    }
}

// Lists are over all keys; a valid length of the metadata hides those behind it, as lengths do.
TEST_P(ContractBlocks, AValidLengthIsALengthOfEveryItem) {
  for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{200}, int64_t{389}, int64_t{390}}) {
    Inputs in = random_inputs(GetParam().dtype, {.batch = 2,
                                                 .seq_q = 200,
                                                 .seq_kv = 390,
                                                 .heads_q = 2,
                                                 .heads_kv = 1,
                                                 .head_dim = 128,
                                                 .dim_v = 128});
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t j = length; j < 390; ++j)
        in.v.set(std::numeric_limits<double>::quiet_NaN(), b, j, 0, 0);
    CallOptions options;
    options.is_causal = GetParam().host_tensors;
    give(random_mask({200, 390, 64, 64, 1, 2}, 3, 60), in, options);
    AttentionMetadata metadata;
    metadata.valid_kv_length = length;
    CallOptions stated = options;
    stated.metadata = &metadata;
    const Answer answer = attend(GetParam(), in, stated);
    // A device does not read numbers in host memory.
    EXPECT_EQ(answer.ran, GetParam().host_tensors || length == 390);
    in.kv_lengths =
        Tensor(kI32, {2}).fill({static_cast<double>(length), static_cast<double>(length)});
    const Answer expected = attend(GetParam(), in, options);
    if (GetParam().host_tensors)
      expect_same_bits(answer, expected);
    else
      expect_close(answer, expected);
    expect_agrees(GetParam(), in, options);
  }
}

TEST_P(ContractBlocks, AllTrueEqualsNoMask) {
  Inputs in = random_inputs(GetParam().dtype, {.batch = 2,
                                               .seq_q = 200,
                                               .seq_kv = 390,
                                               .heads_q = 2,
                                               .heads_kv = 1,
                                               .head_dim = 64,
                                               .dim_v = 64});
  CallOptions options;
  give(random_mask({200, 390, 64, 128, 1, 2}, 5, 60), in, options);
  const Answer plain = attend(GetParam(), in, options);
  EXPECT_TRUE(plain.ran);
  in.mask = Tensor(kBool, {2, 390}).fill(1.0);
  expect_same_bits(plain, attend(GetParam(), in, options));
  in.mask = Tensor(kU8, {1, 2, 200, 390}).fill(1.0);
  expect_same_bits(plain, attend(GetParam(), in, options));
}

// Partial results over disjoint blocks are merged by their LSE, never written over each other.
TEST_P(ContractBlocks, BugRow37_PartsOfTheKeysMergeToTheWhole) {
  for (const int32_t block_q : kSizes)
    for (const int32_t block_kv : kSizes) {
      const BlockMaskShape shape{300, 600, block_q, block_kv, 1, 2};
      const BlockMask whole = random_mask(shape, 9, 50);
      std::vector<Answer> parts;
      for (const bool first : {true, false}) {
        std::vector<uint8_t> matrix = whole.matrix();
        for (size_t n = 0; n < matrix.size(); ++n) {
          const auto column = static_cast<int64_t>(n) % whole.columns();
          if ((column < whole.columns() / 2) != first) matrix[n] = 0;
        }
        Inputs in = random_inputs(GetParam().dtype, {.seq_q = 300,
                                                     .seq_kv = 600,
                                                     .heads_q = 2,
                                                     .heads_kv = 2,
                                                     .head_dim = 64,
                                                     .dim_v = 64});
        CallOptions options;
        options.out_dtype = kF32;
        give(BlockMask::from_matrix(shape, matrix).value(), in, options);
        parts.push_back(attend(GetParam(), in, options));
      }
      Inputs in = random_inputs(
          GetParam().dtype,
          {.seq_q = 300, .seq_kv = 600, .heads_q = 2, .heads_kv = 2, .head_dim = 64, .dim_v = 64});
      CallOptions options;
      options.out_dtype = kF32;
      give(whole, in, options);
      expect_merged(merge(parts), attend(GetParam(), in, options));
    }
}

TEST(BlockInstances, BugRow37_AKernelWithoutLseIsRefused) {
  backends::Instance row;
  row.sparse = true;
  row.lse = false;
  const Problem p = *parse_problem("f32 b1 h2 s300 d16 lse=1 sparse=random");
  const auto reasons = backends::refusals(row, p, {});
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons.front().field, "lse");
}

}  // namespace
}  // namespace fovea::contract
