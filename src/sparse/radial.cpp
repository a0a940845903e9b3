#include "src/sparse/radial.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"

namespace fovea {
namespace sparse {

namespace {

// A range of positions in a frame, the end excluded.
struct Range {
  int32_t begin = 0;
  int32_t end = 0;
};

// The positions of a frame that fall into block `n` counted from the one in which the frame starts
// at `offset`.
Range positions(int32_t n, int32_t offset, int32_t block, int32_t tokens) {
  return {std::max(n * block - offset, 0), std::min((n + 1) * block - offset, tokens)};
}

int32_t length(int32_t begin, int32_t end) { return std::max(end - begin, 0); }

// Decides blocks of one pair of frames. Column c is seen by min(rows, 2w + 1, c + w + 1 - begin,
// end + w - c) rows, so both counts of columns are lengths of intervals.
class PairRule {
 public:
  PairRule(int32_t block, int32_t half_width)
      : half_width_(half_width),
        dense_rows_(block / static_cast<int32_t>(kRadialColumnShare) + 1) {}

  bool dense_possible(Range rows) const {
    return half_width_ >= 0 && rows.end - rows.begin >= dense_rows_ &&
           2 * half_width_ + 1 >= dense_rows_;
  }

  // Only after dense_possible(rows).
  bool on(Range rows, Range columns) const {
    const int32_t touched = length(std::max(columns.begin, rows.begin - half_width_),
                                   std::min(columns.end, rows.end + half_width_));
    const int32_t dense =
        length(std::max(columns.begin, rows.begin - half_width_ - 1 + dense_rows_),
               std::min(columns.end, rows.end + half_width_ - dense_rows_ + 1));
    return kRadialDenseDenominator * dense > kRadialDenseNumerator * touched;
  }

 private:
  int32_t half_width_;
  int32_t dense_rows_;
};

// Sets the blocks of every pair of frames. Like the authors, only ceil(tokens / block) blocks of a
// frame from where it starts; what spills past them belongs to the next frame's blocks.
void add_pairs(const RadialPattern& pattern, int64_t side, std::vector<uint8_t>& matrix) {
  const auto block = static_cast<int32_t>(pattern.block_size);
  const auto tokens = static_cast<int32_t>(pattern.tokens_per_frame);
  const int32_t blocks = (tokens + block - 1) / block;
  std::vector<Range> columns(static_cast<size_t>(blocks));
  for (int64_t j = 0; j < pattern.frames; ++j) {
    const int64_t key_start = j * tokens;
    const auto key_offset = static_cast<int32_t>(key_start % block);
    for (int32_t c = 0; c < blocks; ++c) {
      columns[static_cast<size_t>(c)] = positions(c, key_offset, block, tokens);
    }
    for (int64_t i = 0; i < pattern.frames; ++i) {
      const int64_t query_start = i * tokens;
      const auto query_offset = static_cast<int32_t>(query_start % block);
      const PairRule rule(block, static_cast<int32_t>(radial_half_width(pattern, i, j)));
      uint8_t* out =
          matrix.data() + static_cast<size_t>(query_start / block * side + key_start / block);
      for (int32_t r = 0; r < blocks; ++r, out += side) {
        if (pattern.rule == RadialRule::telefuser && (r == 0 || r == blocks - 1)) {
          std::fill_n(out, blocks, uint8_t{1});
          continue;
        }
        const Range rows = positions(r, query_offset, block, tokens);
        if (!rule.dense_possible(rows)) continue;
        for (int32_t c = 0; c < blocks; ++c) {
          out[c] = static_cast<uint8_t>(out[c] | rule.on(rows, columns[static_cast<size_t>(c)]));
        }
      }
    }
  }
}

}  // namespace

int64_t radial_half_width(const RadialPattern& pattern, int64_t query_frame, int64_t key_frame) {
  const int64_t tokens = pattern.tokens_per_frame;
  if (pattern.model == VideoModel::wan && key_frame == 0) return tokens;
  const int64_t distance = std::abs(query_frame - key_frame);
  // The power of two above the tokens of a frame, divided by that above the distance.
  const int level = static_cast<int>(std::bit_width(static_cast<uint64_t>(distance)));
  const int span = static_cast<int>(std::bit_width(static_cast<uint64_t>(tokens)));
  const int64_t thin = kRadialThinningWidth << level;
  if (thin > int64_t{1} << span && distance % (thin >> span) != 0) return -1;
  if (distance <= 1) return tokens;
  const double window = std::max(std::ldexp(pattern.decay_factor, span - level),
                                 static_cast<double>(pattern.block_size));
  if (window >= static_cast<double>(tokens)) return tokens;
  // The authors compare in single precision.
  return static_cast<int64_t>(std::floor(static_cast<float>(window)));
}

}  // namespace sparse

std::string_view name(RadialRule rule) noexcept {
  switch (rule) {
    case RadialRule::radial:
      return "radial";
    case RadialRule::authors:
      return "authors";
    case RadialRule::telefuser:
      return "telefuser";
  }
  return "unknown";
}

Result<RadialRule> parse_radial_rule(std::string_view text) {
  static constexpr std::string_view kNames[] = {"radial", "authors", "telefuser"};
  for (const RadialRule rule : {RadialRule::radial, RadialRule::authors, RadialRule::telefuser}) {
    if (name(rule) == text) return rule;
  }
  return sparse::invalid_argument(text::concat(
      "rule ", text::quote(text), " is not a radial rule (accepted: ", text::join(kNames), ")",
      text::suggestion(text, kNames)));
}

std::string_view name(VideoModel model) noexcept {
  return model == VideoModel::wan ? "wan" : "hunyuan";
}

Result<VideoModel> parse_video_model(std::string_view text) {
  static constexpr std::string_view kNames[] = {"wan", "hunyuan"};
  for (const VideoModel model : {VideoModel::wan, VideoModel::hunyuan}) {
    if (name(model) == text) return model;
  }
  return sparse::invalid_argument(text::concat(
      "model_type ", text::quote(text), " is not a video model (accepted: ", text::join(kNames),
      ")", text::suggestion(text, kNames)));
}

Result<BlockMask> build_mask(const RadialPattern& pattern) {
  FOVEA_TRY(const sparse::Sequence sequence,
            sparse::check_sequence(pattern.frames, pattern.tokens_per_frame, pattern.text_tokens,
                                   pattern.block_size));
  if (!std::isfinite(pattern.decay_factor) || pattern.decay_factor <= 0) {
    return sparse::invalid_argument("decay_factor " + text::format_number(pattern.decay_factor) +
                                    " is out of range (accepted: finite, above 0)");
  }
  const BlockMaskShape shape{sequence.total, sequence.total, pattern.block_size,
                             pattern.block_size};
  const int64_t side = shape.rows();
  std::vector<uint8_t> matrix(static_cast<size_t>(side * side));
  sparse::add_pairs(pattern, side, matrix);
  // Blocks with text, or with a ragged end of the video.
  const int64_t video_blocks = sequence.video / pattern.block_size;
  for (int64_t row = 0; row < side; ++row) {
    uint8_t* out = matrix.data() + row * side;
    const int64_t from = row < video_blocks ? video_blocks : 0;
    std::fill(out + from, out + side, uint8_t{1});
    if (pattern.rule == RadialRule::radial) out[row] = 1;
  }
  return BlockMask::from_matrix(shape, matrix);
}

}  // namespace fovea
