#include "src/sparse/block_mask.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fovea {
namespace {

const std::vector<uint8_t> kMatrix = {1, 0, 1,  //
                                      0, 0, 0};

BlockMask small() { return BlockMask::from_matrix({200, 300, 128, 128, 1, 1}, kMatrix).value(); }

TEST(BlockMask, ListsAMatrix) {
  const BlockMask mask = small();
  EXPECT_EQ(mask.rows(), 2);
  EXPECT_EQ(mask.columns(), 3);
  EXPECT_EQ(mask.max_count(), 2);
  EXPECT_EQ(std::vector(mask.counts().begin(), mask.counts().end()), (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(std::vector(mask.indices().begin(), mask.indices().end()),
            (std::vector<int32_t>{0, 2, -1, -1}));
  EXPECT_EQ(mask.row(0, 0, 0).back(), 2);
  EXPECT_EQ(mask.matrix(), kMatrix);
  EXPECT_EQ(mask.active(), 2);
  EXPECT_DOUBLE_EQ(mask.density(), 2.0 / 6.0);
  EXPECT_EQ(mask.min_count(), 0);
  EXPECT_EQ(mask.empty_rows(), 1);
  EXPECT_EQ(mask.row_histogram(), (std::vector<int64_t>{1, 0, 1, 0}));
  EXPECT_EQ(mask.memory_bytes(), 24);
  EXPECT_EQ(mask.text(), "#.#\n...\n");
}

TEST(BlockMask, HashIsFnv1aOverTheBytes) {
  // The published value for the single byte 1 follows from the offset and the prime.
  EXPECT_EQ(BlockMask::from_matrix({64, 64, 64, 64, 1, 1}, std::vector<uint8_t>{1}).value().hash(),
            (0xcbf29ce484222325ULL ^ 1) * 0x100000001b3ULL);
  EXPECT_NE(
      small().hash(),
      BlockMask::from_matrix({200, 300, 128, 128, 1, 1}, std::vector<uint8_t>(6)).value().hash());
}

TEST(BlockMask, KeepsBatchesAndHeadsApart) {
  const BlockMaskShape shape{100, 200, 64, 128, 2, 3};
  std::mt19937 random(7);
  std::vector<uint8_t> matrix(2 * 3 * 2 * 2);
  for (uint8_t& value : matrix) value = random() % 2;
  const BlockMask mask = BlockMask::from_matrix(shape, matrix).value();
  EXPECT_EQ(mask.matrix(), matrix);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t r = 0; r < 2; ++r) {
        std::vector<int32_t> expected;
        for (int32_t c = 0; c < 2; ++c) {
          if (matrix[static_cast<size_t>(((b * 3 + h) * 2 + r) * 2 + c)] != 0)
            expected.push_back(c);
        }
        const auto row = mask.row(b, h, r);
        EXPECT_EQ(std::vector(row.begin(), row.end()), expected);
      }
    }
  }
  const std::string text = mask.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12 + 5);
}

TEST(BlockMask, ListsRoundTrip) {
  const BlockMask mask = small();
  const Result<BlockMask> again =
      BlockMask::from_lists(mask.shape(), mask.counts(), mask.indices());
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, mask);
  // Places after the count are not read, and rows become as long as the longest.
  const std::vector<int32_t> counts = {1, 0};
  const std::vector<int32_t> indices = {1, 77, -5, 99, 99, 99};
  const BlockMask padded = BlockMask::from_lists(mask.shape(), counts, indices).value();
  EXPECT_EQ(padded.text(), ".#.\n...\n");
  EXPECT_EQ(padded.max_count(), 1);
}

TEST(BlockMask, RefusesWrongLists) {
  const BlockMaskShape shape{200, 300, 128, 128, 1, 1};
  const auto refusal = [&](std::vector<int32_t> counts, std::vector<int32_t> indices) {
    const Result<BlockMask> mask = BlockMask::from_lists(shape, counts, indices);
    return mask ? "built" : mask.error().message;
  };
  EXPECT_EQ(refusal({1, 1}, {0, 0}), "built");
  EXPECT_EQ(refusal({1}, {0}), "counts has 1 entries (accepted: 2 = 1 x 1 x 2)");
  EXPECT_EQ(refusal({1, 1}, {0, 0, 0}), "indices has 3 entries (accepted: a multiple of 2)");
  EXPECT_EQ(refusal({1, 1}, {}), "indices has 0 entries (accepted: a multiple of 2)");
  EXPECT_EQ(refusal({2, 0}, {0, 0}), "counts[0] 2 is out of range (accepted: 0 to 1)");
  EXPECT_EQ(refusal({0, -1}, {0, 0}), "counts[1] -1 is out of range (accepted: 0 to 1)");
  EXPECT_EQ(refusal({1, 1}, {0, 3}), "indices[1, 0] 3 is out of range (accepted: 0 to 2)");
  EXPECT_EQ(refusal({2, 0}, {1, 1, 0, 0}), "indices[0, 1] 1 is out of range (accepted: 2 to 2)");
}

TEST(BlockMask, RefusesWrongShapes) {
  const auto refusal = [](BlockMaskShape shape, size_t bytes) {
    const Result<BlockMask> mask = BlockMask::from_matrix(shape, std::vector<uint8_t>(bytes));
    return mask ? "built" : mask.error().message;
  };
  EXPECT_EQ(refusal({200, 300, 128, 64, 1, 1}, 10), "built");
  EXPECT_EQ(refusal({200, 300, 32, 64, 1, 1}, 10),
            "block_q 32 is not supported (accepted: 64, 128)");
  EXPECT_EQ(refusal({200, 300, 128, 256, 1, 1}, 10),
            "block_kv 256 is not supported (accepted: 64, 128)");
  EXPECT_EQ(refusal({200, 300, 128, 128, 1, 1}, 5),
            "the matrix has 5 entries (accepted: 6 = 1 x 1 x 2 x 3)");
  EXPECT_NE(refusal({0, 300, 128, 128, 1, 1}, 0).find("seq_q 0 is out of range"),
            std::string::npos);
  EXPECT_NE(refusal({200, 300, 128, 128, 0, 1}, 0).find("batch 0 is out of range"),
            std::string::npos);
  EXPECT_NE(refusal({1 << 30, 1 << 30, 128, 128, 1, 1}, 0).find("is too large"), std::string::npos);
}

TEST(BlockMask, SplitsIntoSmallerBlocksOnly) {
  const BlockMask mask = small();
  EXPECT_EQ(mask.split(128, 128).value(), mask);
  // 200 queries are 4 blocks of 64, 300 keys are 5.
  EXPECT_EQ(mask.split(64, 64).value().text(), "##..#\n##..#\n.....\n.....\n");
  EXPECT_EQ(mask.split(64, 128).value().text(), "#.#\n#.#\n...\n...\n");
  const BlockMask half = mask.split(64, 64).value();
  EXPECT_EQ(half.split(64, 128).error().message,
            "block_kv 128 is larger than the mask's 64: hidden keys would become visible "
            "(accepted: up to 64); build the mask with block_kv 128");
  EXPECT_EQ(half.split(128, 64).error().message,
            "block_q 128 is larger than the mask's 64: hidden keys would become visible "
            "(accepted: up to 64); build the mask with block_q 128");
  EXPECT_EQ(mask.split(32, 64).error().message, "block_q 32 is not supported (accepted: 64, 128)");
}

TEST(BlockMask, ClassifiesAMaskPerToken) {
  // Two items of 130 queries and 200 keys: keys from 64 on are hidden in the first item, every
  // third key of the second block in the other.
  const BlockMaskShape shape{130, 200, 128, 64, 2, 1};
  std::vector<uint8_t> tokens(2 * 130 * 200);
  for (size_t at = 0; at < tokens.size(); ++at) {
    const size_t j = at % 200;
    tokens[at] = at < tokens.size() / 2 ? j < 64 : j < 64 || (j < 128 && j % 3 != 0);
  }
  const TensorView view = make_view(tokens.data(), kBool, {2, 1, 130, 200});
  const BlockMask mask = BlockMask::from_token_mask(shape, view).value();
  EXPECT_EQ(mask.text(), "#...\n#...\n\n##..\n##..\n");
  EXPECT_EQ(std::vector(mask.partial().begin(), mask.partial().end()),
            (std::vector<uint8_t>{0, 0, 0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(mask.partial_blocks(), 2);
  EXPECT_EQ(mask.memory_bytes(), (4 + 8) * 4 + 8);
  const BlockMask smaller = mask.split(64, 64).value();
  EXPECT_EQ(smaller.partial_blocks(), 3);
  EXPECT_EQ(smaller.active(), 9);
  EXPECT_NE(mask, BlockMask::from_matrix(shape, mask.matrix()).value());
  EXPECT_TRUE(BlockMask::from_matrix(shape, mask.matrix()).value().partial().empty());
  EXPECT_EQ(BlockMask::from_token_mask({130, 201, 128, 64, 2, 1}, view).error().message,
            "mask bool[2,1,130,200] on cpu does not fit (accepted: bool or u8 [2,1,130,201] on the "
            "CPU)");
}

}  // namespace
}  // namespace fovea
