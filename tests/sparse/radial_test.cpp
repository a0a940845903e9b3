#include "src/sparse/radial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/sparse/mask_data.hpp"

namespace fovea {
namespace {

const std::string kData = FOVEA_SOURCE_DIR "/tests/sparse/data";

BlockMask built(const RadialPattern& pattern) {
  Result<BlockMask> mask = build_mask(pattern);
  EXPECT_TRUE(mask) << (mask ? std::string() : mask.error().message);
  return std::move(mask).value();
}

std::string refusal(const RadialPattern& pattern) {
  const Result<BlockMask> mask = build_mask(pattern);
  return mask ? "built" : mask.error().message;
}

RadialPattern pattern_of(int64_t frames, int64_t tokens, int32_t block, VideoModel model,
                         RadialRule rule) {
  RadialPattern p;
  p.frames = frames;
  p.tokens_per_frame = tokens;
  p.block_size = block;
  p.model = model;
  p.rule = rule;
  return p;
}

TEST(RadialMask, AuthorsRuleDrawsTheirMasks) {
  const auto masks = test::drawn_masks(kData);
  ASSERT_EQ(masks.size(), 6U);
  for (const auto& known : masks) {
    EXPECT_EQ(built(known.pattern).text(), known.text) << test::describe(known.pattern);
  }
}

TEST(RadialMask, CountsAndHashesOfLargeMasks) {
  const auto masks = test::counted_masks(kData);
  ASSERT_EQ(masks.size(), 182U);
  for (const auto& known : masks) {
    const BlockMask mask = built(known.pattern);
    EXPECT_EQ(mask.active(), known.active) << test::describe(known.pattern);
    EXPECT_EQ(mask.hash(), known.hash) << test::describe(known.pattern);
  }
}

TEST(RadialMask, ReferenceGeometriesBeforeAndAfterTheRepair) {
  RadialPattern p = pattern_of(21, 3600, 128, VideoModel::wan, RadialRule::authors);
  EXPECT_EQ(built(p).active(), 139209);
  EXPECT_EQ(built(p).hash(), 0xeac9b0bcb3a36748U);
  EXPECT_EQ(built(p).columns(), 591);
  EXPECT_NEAR(built(p).density(), 0.3986, 5e-5);
  p.decay_factor = 0.2;
  EXPECT_NEAR(built(p).density(), 0.2647, 5e-5);
  p = pattern_of(31, 880, 128, VideoModel::wan, RadialRule::authors);
  EXPECT_EQ(built(p).active(), 14906);
  EXPECT_EQ(built(p).hash(), 0x96213a8496d1c387U);
  p.rule = RadialRule::radial;
  EXPECT_EQ(built(p).active(), 14910);
}

// The definition, token by token: which tokens of a pair of frames see each other, then the share
// of them in every block.
std::vector<uint8_t> by_definition(const RadialPattern& p) {
  const int64_t block = p.block_size, tokens = p.tokens_per_frame;
  const int64_t video = p.frames * tokens;
  const int64_t side = (video + p.text_tokens + block - 1) / block;
  std::vector<uint8_t> out(static_cast<size_t>(side * side));
  const int64_t per_frame = (tokens + block - 1) / block;
  int64_t power = 1;
  while (power <= tokens) power *= 2;
  for (int64_t i = 0; i < p.frames; ++i) {
    for (int64_t j = 0; j < p.frames; ++j) {
      const int64_t distance = std::abs(i - j);
      double levels = 1;
      while (levels <= static_cast<double>(distance)) levels *= 2;
      const double width = static_cast<double>(power) / levels;
      double window = distance <= 1 ? static_cast<double>(tokens)
                                    : std::max(width * p.decay_factor, static_cast<double>(block));
      bool dropped = false;
      if (p.model == VideoModel::wan && j == 0) {
        window = static_cast<double>(tokens);
      } else if (width < 128 && distance % static_cast<int64_t>(128 / width) != 0) {
        dropped = true;
      }
      const auto limit = static_cast<float>(window);
      for (int64_t r = 0; r < per_frame; ++r) {
        for (int64_t c = 0; c < per_frame; ++c) {
          int64_t touched = 0, dense = 0;
          for (int64_t y = 0; y < block; ++y) {
            int64_t seen = 0;
            const int64_t key = (j * tokens / block + c) * block + y - j * tokens;
            for (int64_t x = 0; x < block && !dropped; ++x) {
              const int64_t query = (i * tokens / block + r) * block + x - i * tokens;
              if (key < 0 || key >= tokens || query < 0 || query >= tokens) continue;
              seen += static_cast<float>(std::abs(key - query)) <= limit;
            }
            touched += seen > 0;
            dense += static_cast<double>(seen) / static_cast<double>(block) > 1.0 / 3.0;
          }
          bool on = touched > 0 && static_cast<double>(dense) / static_cast<double>(touched) > 0.6;
          on |= p.rule == RadialRule::telefuser && (r == 0 || r == per_frame - 1);
          if (on)
            out[static_cast<size_t>((i * tokens / block + r) * side + j * tokens / block + c)] = 1;
        }
      }
    }
  }
  for (int64_t r = 0; r < side; ++r) {
    for (int64_t c = 0; c < side; ++c) {
      const bool edge = r >= video / block || c >= video / block;
      if (edge || (r == c && p.rule == RadialRule::radial)) {
        out[static_cast<size_t>(r * side + c)] = 1;
      }
    }
  }
  return out;
}

TEST(RadialMask, FollowsTheDefinitionTokenByToken) {
  const uint32_t seed = 20250614;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int n = 0; n < 40; ++n) {
    RadialPattern p;
    p.frames = pick(1, 7);
    p.tokens_per_frame = n % 3 == 0 ? pick(1, 70) : pick(60, 300);
    p.text_tokens = n % 2 == 0 ? 0 : pick(1, 150);
    p.block_size = pick(0, 1) == 0 ? 64 : 128;
    p.decay_factor = std::exp(std::uniform_real_distribution<double>(-2.5, 1)(random));
    p.model = pick(0, 1) == 0 ? VideoModel::wan : VideoModel::hunyuan;
    p.rule = static_cast<RadialRule>(pick(0, 2));
    EXPECT_EQ(built(p).matrix(), by_definition(p)) << test::describe(p);
  }
}

TEST(RadialMask, RepairOnlyAddsTheDiagonalAndLeavesNoRowEmpty) {
  int64_t repaired = 0;
  for (const int64_t frames : {1, 2, 7, 16, 31}) {
    for (const int64_t tokens : {1, 40, 64, 200, 880, 1590}) {
      for (const int32_t block : {64, 128}) {
        const BlockMask before =
            built(pattern_of(frames, tokens, block, VideoModel::hunyuan, RadialRule::authors));
        const BlockMask after =
            built(pattern_of(frames, tokens, block, VideoModel::hunyuan, RadialRule::radial));
        repaired += before.empty_rows();
        EXPECT_EQ(after.empty_rows(), 0);
        EXPECT_GE(after.min_count(), 1);
        std::vector<uint8_t> expected = before.matrix();
        for (int64_t n = 0; n < after.rows(); ++n) {
          expected[static_cast<size_t>(n * after.columns() + n)] = 1;
        }
        EXPECT_EQ(after.matrix(), expected) << frames << " x " << tokens << ", " << block;
      }
    }
  }
  EXPECT_GT(repaired, 0);
}

TEST(RadialMask, TextSeesAndIsSeenByAll) {
  RadialPattern p = pattern_of(4, 128, 64, VideoModel::hunyuan, RadialRule::authors);
  p.text_tokens = 128;
  const BlockMask mask = built(p);
  EXPECT_EQ(mask.hash(), 0x2cdf07bf0d16ec51U);
  EXPECT_EQ(mask.active(), 92);
  for (int64_t row = 8; row < 10; ++row) EXPECT_EQ(mask.row(0, 0, row).size(), 10U);
  for (int64_t row = 0; row < 10; ++row) EXPECT_EQ(mask.row(0, 0, row).back(), 9);
}

TEST(RadialMask, DecayScalesFarWindowsOnly) {
  RadialPattern p = pattern_of(2, 1000, 64, VideoModel::hunyuan, RadialRule::radial);
  const BlockMask whole = built(p);
  p.decay_factor = 1e-3;
  EXPECT_EQ(built(p), whole);
  EXPECT_EQ(whole.density(), 1);
  p.frames = 12;
  const int64_t narrow = built(p).active();
  p.decay_factor = 1;
  const int64_t usual = built(p).active();
  // Thinning drops whole frame pairs whatever the width, so even an unbounded window is not dense.
  p.decay_factor = 1e300;
  EXPECT_LT(narrow, usual);
  EXPECT_GT(built(p).active(), usual);
  EXPECT_LT(built(p).density(), 1);
}

TEST(RadialHalfWidth, HalvesWithTheDistanceAndThins) {
  RadialPattern p = pattern_of(40, 1560, 64, VideoModel::hunyuan, RadialRule::radial);
  EXPECT_EQ(sparse::radial_half_width(p, 5, 5), 1560);
  EXPECT_EQ(sparse::radial_half_width(p, 5, 6), 1560);
  EXPECT_EQ(sparse::radial_half_width(p, 2, 0), 512);
  EXPECT_EQ(sparse::radial_half_width(p, 0, 4), 256);
  EXPECT_EQ(sparse::radial_half_width(p, 0, 15), 128);
  EXPECT_EQ(sparse::radial_half_width(p, 0, 17), -1);
  EXPECT_EQ(sparse::radial_half_width(p, 0, 18), 64);
  p.model = VideoModel::wan;
  EXPECT_EQ(sparse::radial_half_width(p, 17, 0), 1560);
  EXPECT_EQ(sparse::radial_half_width(p, 0, 17), -1);
}

TEST(RadialMask, ErrorsNameTheField) {
  const RadialPattern good = pattern_of(4, 100, 64, VideoModel::wan, RadialRule::radial);
  const auto with = [&](auto change) {
    RadialPattern p = good;
    change(p);
    return refusal(p);
  };
  EXPECT_EQ(refusal(good), "built");
  EXPECT_EQ(with([](auto& p) { p.block_size = 96; }),
            "block_size 96 is not supported (accepted: 64, 128)");
  EXPECT_EQ(with([](auto& p) { p.frames = 0; }),
            "frames 0 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(with([](auto& p) { p.tokens_per_frame = -3; }),
            "tokens_per_frame -3 is out of range (accepted: 1 to 268435456)");
  EXPECT_EQ(with([](auto& p) { p.text_tokens = -1; }),
            "text_tokens -1 is out of range (accepted: 0 to 268435456)");
  EXPECT_EQ(with([](auto& p) { p.decay_factor = 0; }),
            "decay_factor 0 is out of range (accepted: finite, above 0)");
  EXPECT_EQ(with([](auto& p) { p.decay_factor = std::numeric_limits<double>::quiet_NaN(); }),
            "decay_factor nan is out of range (accepted: finite, above 0)");
  EXPECT_NE(with([](auto& p) { p.frames = p.tokens_per_frame = 1 << 12; }).find("is too large"),
            std::string::npos);
  EXPECT_NE(with([](auto& p) { p.frames = p.tokens_per_frame = 1 << 28; }).find("out of range"),
            std::string::npos);
}

TEST(RadialNames, RoundTripAndSuggest) {
  for (const RadialRule rule : {RadialRule::radial, RadialRule::authors, RadialRule::telefuser}) {
    EXPECT_EQ(parse_radial_rule(name(rule)).value(), rule);
  }
  for (const VideoModel model : {VideoModel::wan, VideoModel::hunyuan}) {
    EXPECT_EQ(parse_video_model(name(model)).value(), model);
  }
  EXPECT_EQ(parse_radial_rule("author").error().message,
            "rule 'author' is not a radial rule (accepted: radial, authors, telefuser); did you "
            "mean 'authors'?");
  EXPECT_EQ(parse_video_model("mochi").error().message,
            "model_type 'mochi' is not a video model (accepted: wan, hunyuan)");
}

}  // namespace
}  // namespace fovea
