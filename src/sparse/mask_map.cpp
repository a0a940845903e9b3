#include <algorithm>
#include <list>
#include <mutex>
#include <variant>

#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"

namespace fovea {

namespace {

using Pattern = std::variant<RadialPattern, LocalWindowPattern>;

Status check_frames(int64_t video_token_num, int64_t num_frame) {
  FOVEA_CHECK(sparse::check_range("video_token_num", video_token_num, 1, sparse::kMaxBlocks));
  FOVEA_CHECK(sparse::check_range("num_frame", num_frame, 1, sparse::kMaxBlocks));
  if (video_token_num % num_frame == 0) return {};
  const int64_t below = video_token_num / num_frame;
  const auto fit = [&](int64_t tokens) {
    return text::concat(tokens * num_frame, " = ", num_frame, " x ", tokens);
  };
  return sparse::invalid_argument(text::concat(
      "video_token_num ", video_token_num, " is not a multiple of num_frame ", num_frame,
      " (nearest: ", below > 0 ? fit(below) + " or " : std::string(), fit(below + 1), ")"));
}

}  // namespace

struct MaskMap::State {
  struct Entry {
    Pattern pattern;
    std::shared_ptr<const BlockMask> mask;
  };

  int64_t video_token_num = 0;
  int64_t num_frame = 0;
  std::optional<BlockWindowGrid> grid;

  std::mutex mutex;
  std::list<Entry> entries;  // most recently used first

  Result<int64_t> text_tokens(int64_t seq_len) const {
    FOVEA_CHECK(sparse::check_range("seq_len", seq_len, video_token_num, sparse::kMaxBlocks));
    return seq_len - video_token_num;
  }

  Result<std::shared_ptr<const BlockMask>> get(const Pattern& pattern) {
    // Held while building, so that layers that start together build a mask once.
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.pattern == pattern; });
    if (found != entries.end()) {
      entries.splice(entries.begin(), entries, found);
      return found->mask;
    }
    FOVEA_TRY(BlockMask built,
              std::visit([](const auto& value) { return build_mask(value); }, pattern));
    entries.push_front({pattern, std::make_shared<const BlockMask>(std::move(built))});
    if (entries.size() > capacity()) entries.pop_back();
    return entries.front().mask;
  }
};

MaskMap::MaskMap(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<MaskMap> MaskMap::create(int64_t video_token_num, int64_t num_frame,
                                std::optional<BlockWindowGrid> grid) {
  FOVEA_CHECK(check_frames(video_token_num, num_frame));
  if (grid) {
    FOVEA_CHECK(sparse::check_range("grid height", grid->height, 1, sparse::kMaxBlocks));
    FOVEA_CHECK(sparse::check_range("grid width", grid->width, 1, sparse::kMaxBlocks));
  }
  auto state = std::make_shared<State>();
  state->video_token_num = video_token_num;
  state->num_frame = num_frame;
  state->grid = grid;
  return MaskMap(std::move(state));
}

int64_t MaskMap::video_token_num() const noexcept { return state_->video_token_num; }
int64_t MaskMap::num_frame() const noexcept { return state_->num_frame; }
int64_t MaskMap::tokens_per_frame() const noexcept {
  return state_->video_token_num / state_->num_frame;
}
std::optional<BlockWindowGrid> MaskMap::grid() const noexcept { return state_->grid; }

size_t MaskMap::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->entries.size();
}

Result<std::shared_ptr<const BlockMask>> MaskMap::radial(int64_t seq_len,
                                                         const RadialOptions& options,
                                                         VideoModel model) const {
  FOVEA_CHECK(sparse::check_block_size("block_size", options.block_size));
  RadialPattern pattern;
  pattern.frames = num_frame();
  pattern.tokens_per_frame = tokens_per_frame();
  FOVEA_TRY(pattern.text_tokens, state_->text_tokens(seq_len));
  pattern.block_size = static_cast<int32_t>(options.block_size);
  pattern.decay_factor = options.decay_factor;
  pattern.model = model;
  FOVEA_TRY(pattern.rule, parse_radial_rule(options.rule));
  return state_->get(pattern);
}

Result<std::shared_ptr<const BlockMask>> MaskMap::local(int64_t seq_len,
                                                        const LocalSparseOptions& options) const {
  FOVEA_CHECK(sparse::check_block_size("block_size", options.block_size));
  LocalWindowPattern pattern;
  pattern.frames = num_frame();
  pattern.tokens_per_frame = tokens_per_frame();
  FOVEA_TRY(pattern.text_tokens, state_->text_tokens(seq_len));
  pattern.block_size = static_cast<int32_t>(options.block_size);
  pattern.window = options.local_window_size;
  pattern.grid = state_->grid;
  return state_->get(pattern);
}

}  // namespace fovea
