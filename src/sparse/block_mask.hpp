// Checks that every maker of block masks shares.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/error.hpp"
#include "fovea/sparse.hpp"

namespace fovea::sparse {

// Blocks of one mask, all batches and heads: a limit on memory, a video of 2 million tokens.
inline constexpr int64_t kMaxBlocks = int64_t{1} << 28;

// Error invalid_argument unless `value` is 64 or 128.
Status check_block_size(std::string_view field, int64_t value);
// Error invalid_argument unless low <= value <= high.
Status check_range(std::string_view field, int64_t value, int64_t low, int64_t high);
// Block sizes and a size that fits in memory.
Status check_shape(const BlockMaskShape& shape);

Error invalid_argument(std::string message);

// The frames of a pattern and its text as one sequence. Errors name frames, tokens_per_frame or
// text_tokens.
struct Sequence {
  int64_t video = 0;
  int64_t total = 0;
};
Result<Sequence> check_sequence(int64_t frames, int64_t tokens_per_frame, int64_t text_tokens,
                                int64_t block_size);

}  // namespace fovea::sparse
