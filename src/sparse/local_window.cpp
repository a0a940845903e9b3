#include "src/sparse/local_window.hpp"

#include <algorithm>
#include <vector>

#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"

namespace fovea {
namespace sparse {

namespace {

// Positions of the window: a layer of the video (a frame, or height * width blocks) is cut into
// cells of block_size tokens; the last may be ragged. Without a grid the layer has one row.
struct Cells {
  int64_t layer_tokens = 0;
  int64_t height = 1;
  int64_t width = 1;

  int64_t count() const { return height * width; }
};

// A set of cells.
class CellSet {
 public:
  explicit CellSet(int64_t cells) : words_(static_cast<size_t>((cells + 63) / 64)) {}

  void insert(int64_t cell) {
    words_[static_cast<size_t>(cell / 64)] |= uint64_t{1} << (cell % 64);
  }
  bool contains(int64_t cell) const {
    return (words_[static_cast<size_t>(cell / 64)] >> (cell % 64) & 1) != 0;
  }
  bool meets(const CellSet& other) const {
    for (size_t n = 0; n < words_.size(); ++n) {
      if ((words_[n] & other.words_[n]) != 0) return true;
    }
    return false;
  }

 private:
  std::vector<uint64_t> words_;
};

// The grid of the pattern. Error: the tokens do not fill whole layers of it.
Result<Cells> make_cells(const LocalWindowPattern& pattern) {
  if (!pattern.grid) {
    return Cells{pattern.tokens_per_frame, 1,
                 (pattern.tokens_per_frame + pattern.block_size - 1) / pattern.block_size};
  }
  const BlockWindowGrid& grid = *pattern.grid;
  FOVEA_CHECK(check_range("grid height", grid.height, 1, kMaxBlocks));
  FOVEA_CHECK(check_range("grid width", grid.width, 1, kMaxBlocks));
  const int64_t layer = grid.height * grid.width * pattern.block_size;
  const int64_t video = pattern.frames * pattern.tokens_per_frame;
  if (video % layer != 0) {
    const int64_t below = video / layer * layer;
    return invalid_argument(text::concat(
        "grid ", grid.height, " x ", grid.width, " of blocks of ", pattern.block_size,
        " tokens does not fit ", video, " video tokens: a layer has ", layer, " (nearest: ",
        below > 0 ? text::concat(below, " or ") : std::string(), below + layer, " video tokens)"));
  }
  return Cells{layer, grid.height, grid.width};
}

// The cells that a block of the video touches.
CellSet touched(const Cells& cells, int64_t begin, int64_t end, int64_t block) {
  CellSet set(cells.count());
  for (int64_t token = begin; token < end;) {
    const int64_t position = token % cells.layer_tokens;
    const int64_t cell = position / block;
    set.insert(cell);
    token += std::min((cell + 1) * block, cells.layer_tokens) - position;
  }
  return set;
}

// The cells that some token of these sees.
CellSet visible(const Cells& cells, const CellSet& from, int64_t window) {
  CellSet set(cells.count());
  for (int64_t cell = 0; cell < cells.count(); ++cell) {
    if (!from.contains(cell)) continue;
    const AxisWindow rows = axis_window(cell / cells.width, window, cells.height);
    const AxisWindow columns = axis_window(cell % cells.width, window, cells.width);
    for (int64_t y = rows.first; y <= rows.last; ++y) {
      for (int64_t x = columns.first; x <= columns.last; ++x) set.insert(y * cells.width + x);
    }
  }
  return set;
}

}  // namespace
}  // namespace sparse

Result<BlockMask> build_mask(const LocalWindowPattern& pattern) {
  FOVEA_TRY(const sparse::Sequence sequence,
            sparse::check_sequence(pattern.frames, pattern.tokens_per_frame, pattern.text_tokens,
                                   pattern.block_size));
  FOVEA_CHECK(sparse::check_range("window", pattern.window, 1, sparse::kMaxBlocks));
  FOVEA_TRY(const sparse::Cells cells, sparse::make_cells(pattern));

  const int64_t block = pattern.block_size;
  const BlockMaskShape shape{sequence.total, sequence.total, pattern.block_size,
                             pattern.block_size};
  const int64_t side = shape.rows();
  // Blocks of video alone; those with text see and are seen by all.
  const int64_t video_blocks =
      pattern.text_tokens > 0 ? sequence.video / block : (sequence.video + block - 1) / block;
  std::vector<sparse::CellSet> touched;
  touched.reserve(static_cast<size_t>(video_blocks));
  for (int64_t n = 0; n < video_blocks; ++n) {
    touched.push_back(
        sparse::touched(cells, n * block, std::min((n + 1) * block, sequence.video), block));
  }
  std::vector<uint8_t> matrix(static_cast<size_t>(side * side), 1);
  for (int64_t row = 0; row < video_blocks; ++row) {
    const sparse::CellSet seen =
        sparse::visible(cells, touched[static_cast<size_t>(row)], pattern.window);
    uint8_t* out = matrix.data() + row * side;
    for (int64_t column = 0; column < video_blocks; ++column) {
      out[column] = seen.meets(touched[static_cast<size_t>(column)]) ? 1 : 0;
    }
  }
  return BlockMask::from_matrix(shape, matrix);
}

}  // namespace fovea
