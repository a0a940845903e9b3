#include "src/sparse/local_window.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "fovea/sparse.hpp"

namespace fovea {
namespace {

LocalWindowPattern pattern_of(int64_t frames, int64_t tokens, int32_t block, int64_t window,
                              std::optional<BlockWindowGrid> grid = {}) {
  LocalWindowPattern p;
  p.frames = frames;
  p.tokens_per_frame = tokens;
  p.block_size = block;
  p.window = window;
  p.grid = grid;
  return p;
}

BlockMask built(const LocalWindowPattern& pattern) {
  Result<BlockMask> mask = build_mask(pattern);
  EXPECT_TRUE(mask) << (mask ? std::string() : mask.error().message);
  return std::move(mask).value();
}

std::string refusal(const LocalWindowPattern& pattern) {
  const Result<BlockMask> mask = build_mask(pattern);
  return mask ? "built" : mask.error().message;
}

TEST(AxisWindow, EvenWidthsReachOneFurtherToTheLowSide) {
  EXPECT_EQ(sparse::axis_window(10, 6, 100).first, 7);
  EXPECT_EQ(sparse::axis_window(10, 6, 100).last, 12);
  EXPECT_EQ(sparse::axis_window(10, 5, 100).first, 8);
  EXPECT_EQ(sparse::axis_window(10, 5, 100).last, 12);
  EXPECT_EQ(sparse::axis_window(1, 6, 100).first, 0);
  EXPECT_EQ(sparse::axis_window(98, 6, 100).last, 99);
  EXPECT_EQ(sparse::axis_window(5, 1, 100).first, 5);
  EXPECT_EQ(sparse::axis_window(5, 1, 100).last, 5);
}

TEST(LocalWindow, CountsOnGrids) {
  struct Case {
    int64_t height, width, window, active;
  };
  for (const Case& c : {Case{3, 4, 3, 70}, Case{3, 4, 2, 35}, Case{4, 4, 3, 100},
                        Case{6, 10, 9, 2380}, Case{6, 10, 6, 1377}, Case{6, 10, 11, 2880}}) {
    for (const int64_t layers : {1, 3}) {
      // A layer of 128-token windows is two frames of 8 x 8 tiles.
      const BlockMask mask = built(pattern_of(2 * layers, c.height * c.width * 64, 128, c.window,
                                              BlockWindowGrid{c.height, c.width}));
      EXPECT_EQ(mask.active(), c.active * layers * layers)
          << c.height << " x " << c.width << ", window " << c.window;
      EXPECT_EQ(mask.empty_rows(), 0);
    }
  }
}

TEST(LocalWindow, DrawsAGrid) {
  const BlockMask mask = built(pattern_of(1, 12 * 64, 64, 2, BlockWindowGrid{3, 4}));
  EXPECT_EQ(mask.text().substr(0, 6 * 13),
            "#...........\n"
            "##..........\n"
            ".##.........\n"
            "..##........\n"
            "#...#.......\n"
            "##..##......\n");
}

TEST(LocalWindow, RunsAlongTheTokensOfAFrameWithoutAGrid) {
  EXPECT_EQ(built(pattern_of(2, 4 * 64, 64, 3)).text(),
            "##..##..\n"
            "###.###.\n"
            ".###.###\n"
            "..##..##\n"
            "##..##..\n"
            "###.###.\n"
            ".###.###\n"
            "..##..##\n");
}

TEST(LocalWindow, TextSeesAndIsSeenByAll) {
  LocalWindowPattern p = pattern_of(1, 4 * 64 - 10, 64, 1);
  EXPECT_EQ(built(p).text(),
            "#...\n"
            ".#..\n"
            "..#.\n"
            "...#\n");
  p.text_tokens = 40;
  EXPECT_EQ(built(p).text(),
            "#..##\n"
            ".#.##\n"
            "..###\n"
            "#####\n"
            "#####\n");
}

// Token by token: a block of keys is on when some query of the row sees some key of it.
TEST(LocalWindow, FollowsTheDefinitionForFramesThatStraddleBlocks) {
  const uint32_t seed = 4711;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int n = 0; n < 30; ++n) {
    LocalWindowPattern p =
        pattern_of(pick(1, 5), pick(1, 500), pick(0, 1) == 0 ? 64 : 128, pick(1, 5));
    p.text_tokens = n % 2 == 0 ? 0 : pick(1, 200);
    const int64_t block = p.block_size;
    const int64_t video = p.frames * p.tokens_per_frame, total = video + p.text_tokens;
    const int64_t side = (total + block - 1) / block;
    std::vector<uint8_t> expected(static_cast<size_t>(side * side));
    for (int64_t q = 0; q < total; ++q) {
      for (int64_t k = 0; k < total; ++k) {
        const int64_t apart =
            k % p.tokens_per_frame / block - q % p.tokens_per_frame / block + p.window / 2;
        // Both in the video, or in a block that holds text.
        const bool edge =
            p.text_tokens > 0 && (q / block >= video / block || k / block >= video / block);
        if (edge || (apart >= 0 && apart < p.window)) {
          expected[static_cast<size_t>(q / block * side + k / block)] = 1;
        }
      }
    }
    EXPECT_EQ(built(p).matrix(), expected)
        << p.frames << " x " << p.tokens_per_frame << " + " << p.text_tokens << " block " << block
        << " window " << p.window;
  }
}

TEST(LocalWindow, WideWindowsAreDense) {
  EXPECT_EQ(built(pattern_of(3, 1000, 64, 1000)).density(), 1);
  EXPECT_EQ(built(pattern_of(3, 1, 128, 1)).density(), 1);
}

TEST(LocalWindow, ErrorsNameTheField) {
  EXPECT_EQ(refusal(pattern_of(4, 100, 64, 0)),
            "window 0 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(refusal(pattern_of(4, 100, 32, 6)),
            "block_size 32 is not supported (accepted: 64, 128)");
  EXPECT_EQ(refusal(pattern_of(4, 100, 64, 6, BlockWindowGrid{0, 4})),
            "grid height 0 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(refusal(pattern_of(2, 800, 64, 6, BlockWindowGrid{3, 4})),
            "grid 3 x 4 of blocks of 64 tokens does not fit 1600 video tokens: a layer has 768 "
            "(nearest: 1536 or 2304 video tokens)");
  EXPECT_EQ(refusal(pattern_of(1, 100, 64, 6, BlockWindowGrid{3, 4})),
            "grid 3 x 4 of blocks of 64 tokens does not fit 100 video tokens: a layer has 768 "
            "(nearest: 768 video tokens)");
}

}  // namespace
}  // namespace fovea
