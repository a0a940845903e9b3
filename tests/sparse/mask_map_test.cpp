#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "fovea/sparse.hpp"

namespace fovea {
namespace {

MaskMap map_of(int64_t tokens, int64_t frames, std::optional<BlockWindowGrid> grid = {}) {
  return MaskMap::create(tokens, frames, grid).value();
}

TEST(MaskMap, NamesTheNearestTokenCounts) {
  EXPECT_EQ(MaskMap::create(32761, 21).error().message,
            "video_token_num 32761 is not a multiple of num_frame 21 (nearest: 32760 = 21 x 1560 "
            "or 32781 = 21 x 1561)");
  EXPECT_EQ(MaskMap::create(5, 21).error().message,
            "video_token_num 5 is not a multiple of num_frame 21 (nearest: 21 = 21 x 1)");
  EXPECT_EQ(MaskMap::create(0, 21).error().message,
            "video_token_num 0 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(MaskMap::create(5, 0).error().message,
            "num_frame 0 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(MaskMap::create(5, 5, BlockWindowGrid{1, 0}).error().message,
            "grid width 0 is out of range (accepted: 1 to 268435456)");
}

TEST(MaskMap, BuildsWhatThePatternSays) {
  const MaskMap map = map_of(27280, 31);
  EXPECT_EQ(map.tokens_per_frame(), 880);
  RadialOptions options;
  options.rule = "authors";
  EXPECT_EQ(map.radial(27280, options, VideoModel::wan).value()->hash(), 0x96213a8496d1c387U);
  EXPECT_EQ(map.radial(27280 + 200, options, VideoModel::wan).value()->columns(), 215);
  EXPECT_EQ(map.radial(27279, options, VideoModel::wan).error().message,
            "seq_len 27279 is out of range (accepted: 27280 to 268435456)");
  options.block_size = 100;
  EXPECT_EQ(map.radial(27280, options, VideoModel::wan).error().message,
            "block_size 100 is not supported (accepted: 64, 128)");
  LocalSparseOptions local;
  local.local_window_size = 2;
  local.block_size = 64;
  EXPECT_EQ(map_of(12 * 64, 1, BlockWindowGrid{3, 4}).local(12 * 64, local).value()->active(), 35);
}

TEST(MaskMap, KeepsOneMaskPerGeometry) {
  const MaskMap map = map_of(1024, 8);
  RadialOptions options;
  const auto first = map.radial(1024, options, VideoModel::wan).value();
  EXPECT_EQ(map.radial(1024, options, VideoModel::wan).value(), first);
  EXPECT_EQ(MaskMap(map).radial(1024, options, VideoModel::wan).value(), first);
  EXPECT_EQ(map.size(), 1U);
  // What decides a mask is part of the key.
  options.decay_factor = 0.5;
  EXPECT_NE(map.radial(1024, options, VideoModel::wan).value(), first);
  options = {};
  EXPECT_NE(map.radial(1024, options, VideoModel::hunyuan).value(), first);
  options.block_size = 64;
  EXPECT_NE(map.radial(1024, options, VideoModel::wan).value(), first);
  options = {};
  options.rule = "authors";
  EXPECT_NE(map.radial(1024, options, VideoModel::wan).value(), first);
  EXPECT_NE(map.radial(1100, {}, VideoModel::wan).value(), first);
  EXPECT_EQ(map.size(), 6U);
  // Another map does not see it.
  EXPECT_NE(map_of(1024, 8).radial(1024, {}, VideoModel::wan).value(), first);
}

TEST(MaskMap, DropsTheLeastRecentMask) {
  const MaskMap map = map_of(256, 4);
  const auto get = [&](int64_t text) {
    return map.radial(256 + text, {}, VideoModel::wan).value();
  };
  const auto first = get(0);
  const auto second = get(1);
  for (int64_t n = 2; n < 20; ++n) {
    get(n);
    EXPECT_EQ(get(0), first);
    EXPECT_LE(map.size(), MaskMap::capacity());
  }
  EXPECT_NE(get(1), second);
  EXPECT_EQ(*get(1), *second);
}

TEST(MaskMap, FailuresAreNotKept) {
  const MaskMap map = map_of(256, 4);
  RadialOptions options;
  options.decay_factor = -1;
  EXPECT_FALSE(map.radial(256, options, VideoModel::wan));
  EXPECT_EQ(map.size(), 0U);
}

TEST(MaskMap, ThreadsShareOneMask) {
  const MaskMap map = map_of(8 * 640, 8);
  std::vector<std::shared_ptr<const BlockMask>> masks(8);
  std::vector<std::thread> threads;
  for (size_t n = 0; n < masks.size(); ++n) {
    threads.emplace_back([&, n] { masks[n] = map.radial(8 * 640, {}, VideoModel::wan).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mask : masks) EXPECT_EQ(mask, masks.front());
  EXPECT_EQ(map.size(), 1U);
}

}  // namespace
}  // namespace fovea
