#include "src/sparse/block_mask.hpp"

#include <algorithm>

#include "src/core/checked_math.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace sparse {

namespace {

constexpr int64_t kSmallBlock = 64;
constexpr int64_t kLargeBlock = 128;
constexpr int32_t kNoBlock = -1;

}  // namespace

Error invalid_argument(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message), {}};
}

Status check_block_size(std::string_view field, int64_t value) {
  if (value == kSmallBlock || value == kLargeBlock) return {};
  return invalid_argument(text::concat(
      field, " ", value, " is not supported (accepted: ", kSmallBlock, ", ", kLargeBlock, ")"));
}

Status check_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return {};
  return invalid_argument(
      text::concat(field, " ", value, " is out of range (accepted: ", low, " to ", high, ")"));
}

Status check_shape(const BlockMaskShape& shape) {
  FOVEA_CHECK(check_block_size("block_q", shape.block_q));
  FOVEA_CHECK(check_block_size("block_kv", shape.block_kv));
  FOVEA_CHECK(check_range("seq_q", shape.seq_q, 1, kMaxBlocks * kLargeBlock));
  FOVEA_CHECK(check_range("seq_kv", shape.seq_kv, 1, kMaxBlocks * kLargeBlock));
  FOVEA_CHECK(check_range("batch", shape.batch, 1, kMaxBlocks));
  FOVEA_CHECK(check_range("heads", shape.heads, 1, kMaxBlocks));
  const int64_t blocks =
      saturating_product({shape.batch, shape.heads, shape.rows(), shape.columns()});
  if (blocks > kMaxBlocks) {
    return invalid_argument(text::concat("a block mask of ", shape.batch, " x ", shape.heads, " x ",
                                         shape.rows(), " x ", shape.columns(),
                                         " blocks is too large (accepted: up to ", kMaxBlocks,
                                         "); use larger blocks or share it between heads"));
  }
  return {};
}

Result<Sequence> check_sequence(int64_t frames, int64_t tokens_per_frame, int64_t text_tokens,
                                int64_t block_size) {
  FOVEA_CHECK(check_block_size("block_size", block_size));
  constexpr int64_t kMaxTokens = kMaxBlocks;
  FOVEA_CHECK(check_range("frames", frames, 1, kMaxTokens));
  FOVEA_CHECK(check_range("tokens_per_frame", tokens_per_frame, 1, kMaxTokens));
  FOVEA_CHECK(check_range("text_tokens", text_tokens, 0, kMaxTokens));
  const int64_t video = frames * tokens_per_frame;
  FOVEA_CHECK(check_range("frames * tokens_per_frame", video, 1, kMaxTokens));
  const Sequence out{video, video + text_tokens};
  const auto block = static_cast<int32_t>(block_size);
  FOVEA_CHECK(check_shape({out.total, out.total, block, block}));
  return out;
}

}  // namespace sparse

Result<BlockMask> BlockMask::from_matrix(const BlockMaskShape& shape,
                                         std::span<const uint8_t> matrix) {
  FOVEA_CHECK(sparse::check_shape(shape));
  const int64_t rows = shape.batch * shape.heads * shape.rows();
  const int64_t columns = shape.columns();
  if (std::ssize(matrix) != rows * columns) {
    return sparse::invalid_argument(text::concat(
        "the matrix has ", matrix.size(), " entries (accepted: ", rows * columns, " = ",
        shape.batch, " x ", shape.heads, " x ", shape.rows(), " x ", columns, ")"));
  }
  BlockMask mask;
  mask.shape_ = shape;
  mask.counts_.resize(static_cast<size_t>(rows));
  const uint8_t* source = matrix.data();
  for (int64_t row = 0; row < rows; ++row, source += columns) {
    int32_t count = 0;
    for (int64_t c = 0; c < columns; ++c) count += source[c] != 0;
    mask.counts_[static_cast<size_t>(row)] = count;
    mask.max_count_ = std::max<int64_t>(mask.max_count_, count);
    mask.active_ += count;
  }
  mask.indices_.resize(static_cast<size_t>(rows * mask.max_count_), sparse::kNoBlock);
  source = matrix.data();
  int32_t* out = mask.indices_.data();
  for (int64_t row = 0; row < rows; ++row, source += columns, out += mask.max_count_) {
    const int32_t count = mask.counts_[static_cast<size_t>(row)];
    int32_t filled = 0;
    for (int32_t c = 0; filled < count; ++c) {
      out[filled] = c;
      filled += source[c] != 0;
    }
  }
  return mask;
}

namespace {

// The class of one block: 0 hidden, 1 full, 2 partial.
uint8_t classify(const uint8_t* mask, const TensorView& view, int64_t rows, int64_t columns) {
  bool any = false;
  bool all = true;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const bool on = mask[r * view.stride[2] + c * view.stride[3]] != 0;
      any = any || on;
      all = all && on;
    }
  }
  return all ? 1 : any ? 2 : 0;
}

}  // namespace

Result<BlockMask> BlockMask::from_classes(const BlockMaskShape& shape,
                                          std::span<const uint8_t> classes) {
  FOVEA_TRY(BlockMask mask, from_matrix(shape, classes));
  if (std::find(classes.begin(), classes.end(), uint8_t{2}) == classes.end()) return mask;
  mask.partial_.resize(mask.indices_.size());
  const auto width = static_cast<size_t>(shape.columns());
  for (size_t row = 0; row < mask.counts_.size(); ++row) {
    const size_t first = row * static_cast<size_t>(mask.max_count_);
    for (size_t n = first; n < first + static_cast<size_t>(mask.counts_[row]); ++n) {
      mask.partial_[n] = classes[row * width + static_cast<size_t>(mask.indices_[n])] == 2 ? 1 : 0;
    }
  }
  return mask;
}

std::vector<uint8_t> BlockMask::classes() const {
  std::vector<uint8_t> out = matrix();
  const auto width = static_cast<size_t>(columns());
  for (size_t n = 0; n < partial_.size(); ++n) {
    if (partial_[n] == 0) continue;
    out[n / static_cast<size_t>(max_count_) * width + static_cast<size_t>(indices_[n])] = 2;
  }
  return out;
}

Result<BlockMask> BlockMask::from_token_mask(const BlockMaskShape& shape, const TensorView& mask) {
  FOVEA_CHECK(sparse::check_shape(shape));
  const bool fits = mask.rank == 4 && (mask.dtype == kBool || mask.dtype == kU8) &&
                    mask.device.type == DeviceType::cpu && mask.data != nullptr &&
                    mask.shape[0] == shape.batch && mask.shape[1] == shape.heads &&
                    mask.shape[2] == shape.seq_q && mask.shape[3] == shape.seq_kv;
  if (!fits) {
    return sparse::invalid_argument(
        text::concat("mask ", to_string(mask), " on ", to_string(mask.device),
                     " does not fit (accepted: bool or u8 [", shape.batch, ",", shape.heads, ",",
                     shape.seq_q, ",", shape.seq_kv, "] on the CPU)"));
  }
  const int64_t rows = shape.rows();
  const int64_t columns = shape.columns();
  std::vector<uint8_t> classes(static_cast<size_t>(shape.batch * shape.heads * rows * columns));
  size_t at = 0;
  for (int64_t plane = 0; plane < shape.batch * shape.heads; ++plane) {
    const auto* base = static_cast<const uint8_t*>(mask.data) +
                       plane / shape.heads * mask.stride[0] + plane % shape.heads * mask.stride[1];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first_row = r * shape.block_q;
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t first_key = c * shape.block_kv;
        classes[at++] = classify(base + first_row * mask.stride[2] + first_key * mask.stride[3],
                                 mask, std::min<int64_t>(shape.block_q, shape.seq_q - first_row),
                                 std::min<int64_t>(shape.block_kv, shape.seq_kv - first_key));
      }
    }
  }
  return from_classes(shape, classes);
}

Result<BlockMask> BlockMask::from_lists(const BlockMaskShape& shape,
                                        std::span<const int32_t> counts,
                                        std::span<const int32_t> indices) {
  FOVEA_CHECK(sparse::check_shape(shape));
  const int64_t rows = shape.batch * shape.heads * shape.rows();
  if (std::ssize(counts) != rows) {
    return sparse::invalid_argument(text::concat("counts has ", counts.size(),
                                                 " entries (accepted: ", rows, " = ", shape.batch,
                                                 " x ", shape.heads, " x ", shape.rows(), ")"));
  }
  if (indices.empty() || std::ssize(indices) % rows != 0) {
    return sparse::invalid_argument(text::concat("indices has ", indices.size(),
                                                 " entries (accepted: a multiple of ", rows, ")"));
  }
  const int64_t stride = std::ssize(indices) / rows;
  BlockMask mask;
  mask.shape_ = shape;
  mask.counts_.assign(counts.begin(), counts.end());
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t count = counts[static_cast<size_t>(row)];
    FOVEA_CHECK(sparse::check_range(text::concat("counts[", row, "]"), count, 0,
                                    std::min(stride, shape.columns())));
    int64_t low = 0;
    for (int64_t n = 0; n < count; ++n) {
      const int32_t index = indices[static_cast<size_t>(row * stride + n)];
      FOVEA_CHECK(sparse::check_range(text::concat("indices[", row, ", ", n, "]"), index, low,
                                      shape.columns() - 1));
      low = int64_t{index} + 1;
    }
    mask.max_count_ = std::max<int64_t>(mask.max_count_, count);
    mask.active_ += count;
  }
  mask.indices_.resize(static_cast<size_t>(rows * mask.max_count_), sparse::kNoBlock);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(indices.begin() + row * stride, counts[static_cast<size_t>(row)],
                mask.indices_.begin() + row * mask.max_count_);
  }
  return mask;
}

std::vector<uint8_t> BlockMask::matrix() const {
  const auto width = static_cast<size_t>(columns());
  std::vector<uint8_t> out(counts_.size() * width);
  for (size_t row = 0; row < counts_.size(); ++row) {
    const int32_t* list = indices_.data() + row * static_cast<size_t>(max_count_);
    for (int32_t n = 0; n < counts_[row]; ++n) out[row * width + static_cast<size_t>(list[n])] = 1;
  }
  return out;
}

double BlockMask::density() const noexcept {
  return static_cast<double>(active_) /
         (static_cast<double>(counts_.size()) * static_cast<double>(columns()));
}

int64_t BlockMask::min_count() const noexcept {
  return *std::min_element(counts_.begin(), counts_.end());
}

int64_t BlockMask::empty_rows() const noexcept {
  return std::count(counts_.begin(), counts_.end(), 0);
}

std::vector<int64_t> BlockMask::row_histogram() const {
  std::vector<int64_t> out(static_cast<size_t>(columns() + 1));
  for (const int32_t count : counts_) ++out[static_cast<size_t>(count)];
  return out;
}

int64_t BlockMask::memory_bytes() const noexcept {
  return static_cast<int64_t>((counts_.size() + indices_.size()) * sizeof(int32_t) +
                              partial_.size());
}

int64_t BlockMask::partial_blocks() const noexcept {
  return std::count(partial_.begin(), partial_.end(), uint8_t{1});
}

uint64_t BlockMask::hash() const noexcept {
  constexpr uint64_t kOffset = 0xcbf29ce484222325ULL;
  constexpr uint64_t kPrime = 0x100000001b3ULL;
  uint64_t hash = kOffset;
  for (size_t row = 0; row < counts_.size(); ++row) {
    const int32_t* list = indices_.data() + row * static_cast<size_t>(max_count_);
    int32_t n = 0;
    for (int32_t c = 0; c < columns(); ++c) {
      const bool on = n < counts_[row] && list[n] == c;
      n += on;
      hash = (hash ^ (on ? 1U : 0U)) * kPrime;
    }
  }
  return hash;
}

std::string BlockMask::text() const {
  std::string out;
  const auto width = static_cast<size_t>(columns());
  const auto height = static_cast<size_t>(rows());
  out.reserve(counts_.size() * (width + 1) + counts_.size() / height);
  for (size_t row = 0; row < counts_.size(); ++row) {
    if (row > 0 && row % height == 0) out += '\n';
    const size_t start = out.size();
    out.append(width, '.');
    const int32_t* list = indices_.data() + row * static_cast<size_t>(max_count_);
    for (int32_t n = 0; n < counts_[row]; ++n) out[start + static_cast<size_t>(list[n])] = '#';
    out += '\n';
  }
  return out;
}

Result<BlockMask> BlockMask::split(int32_t block_q, int32_t block_kv) const {
  FOVEA_CHECK(sparse::check_block_size("block_q", block_q));
  FOVEA_CHECK(sparse::check_block_size("block_kv", block_kv));
  const auto too_large = [](std::string_view field, int32_t own, int32_t asked) {
    return sparse::invalid_argument(
        text::concat(field, " ", asked, " is larger than the mask's ", own,
                     ": hidden keys would become visible (accepted: up to ", own,
                     "); build the mask with ", field, " ", asked));
  };
  if (block_q > shape_.block_q) return too_large("block_q", shape_.block_q, block_q);
  if (block_kv > shape_.block_kv) return too_large("block_kv", shape_.block_kv, block_kv);
  BlockMaskShape shape = shape_;
  shape.block_q = block_q;
  shape.block_kv = block_kv;
  FOVEA_CHECK(sparse::check_shape(shape));
  const int64_t rows_per = shape_.block_q / block_q;
  const int64_t columns_per = shape_.block_kv / block_kv;
  const std::vector<uint8_t> source = classes();
  const int64_t planes = shape.batch * shape.heads;
  std::vector<uint8_t> out(static_cast<size_t>(planes * shape.rows() * shape.columns()));
  size_t at = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t r = 0; r < shape.rows(); ++r) {
      const int64_t row = (plane * rows() + r / rows_per) * columns();
      for (int64_t c = 0; c < shape.columns(); ++c) {
        out[at++] = source[static_cast<size_t>(row + c / columns_per)];
      }
    }
  }
  return from_classes(shape, out);
}

}  // namespace fovea
