#include "src/sparse/pattern.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"

namespace fovea::sparse {
namespace {

constexpr int64_t kMaxTokens = kMaxBlocks;
// Stream of random blocks; those of tensors are small numbers.
constexpr uint64_t kBlockStream = 0x626c6f636bULL;

// Reads the parameters of one pattern; the first error stays.
class Parameters {
 public:
  explicit Parameters(const SparsePattern& pattern) : pattern_(pattern) {}

  int64_t integer(std::string_view key, int64_t missing, int64_t low, int64_t high) {
    const std::string* value = find(key);
    if (value == nullptr) return missing;
    const std::optional<int64_t> number = text::parse_integer(*value);
    if (!number || *number < low || *number > high) {
      refuse(key, *value, text::concat(low, " to ", high));
      return missing;
    }
    return *number;
  }

  double number(std::string_view key, double missing) {
    const std::string* value = find(key);
    if (value == nullptr) return missing;
    const std::optional<double> number = text::parse_number(*value);
    if (!number) refuse(key, *value, "a number");
    return number.value_or(missing);
  }

  std::string word(std::string_view key, std::string_view missing) {
    const std::string* value = find(key);
    return value == nullptr ? std::string(missing) : *value;
  }

  const Status& status() const { return status_; }
  bool has(std::string_view key) { return find(key) != nullptr; }

  void refuse(std::string_view key, std::string_view value, std::string_view accepted) {
    if (status_) {
      status_ = invalid_argument(text::concat(pattern_.name, ": ", key, " ", text::quote(value),
                                              " is not accepted (accepted: ", accepted, ")"));
    }
  }

  // After all have been read: what else is there is unknown.
  Status finish() {
    for (const auto& parameter : pattern_.parameters) {
      const bool known = std::find(known_.begin(), known_.end(), parameter.first) != known_.end();
      if (known || !status_) continue;
      status_ = invalid_argument(text::concat(
          pattern_.name, " has no parameter ", text::quote(parameter.first),
          " (accepted: ", text::join(known_), ")", text::suggestion(parameter.first, known_)));
    }
    return status_;
  }

 private:
  const std::string* find(std::string_view key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
    for (const auto& parameter : pattern_.parameters) {
      if (parameter.first == key) return &parameter.second;
    }
    return nullptr;
  }

  const SparsePattern& pattern_;
  std::vector<std::string_view> known_;
  Status status_;
};

int32_t block_size(Parameters& parameters, std::string_view key) {
  const int64_t size = parameters.integer(key, 128, 0, kMaxTokens);
  if (size == 64 || size == 128) return static_cast<int32_t>(size);
  parameters.refuse(key, std::to_string(size), "64, 128");
  return 128;
}

// Frames of a video whose tokens come first; text up to the length of the sequence.
template <class Video>
Status read_video(const Problem& problem, Parameters& parameters, Video& pattern) {
  const std::string& who = problem.sparse->name;
  pattern.frames = parameters.integer("frames", 0, 1, kMaxTokens);
  if (!parameters.has("frames")) return invalid_argument(who + " needs frames");
  const bool stated = parameters.has("tokens");
  pattern.tokens_per_frame = parameters.integer(
      "tokens", problem.seq_q / std::max<int64_t>(pattern.frames, 1), 1, kMaxTokens);
  pattern.block_size = block_size(parameters, "block");
  FOVEA_CHECK(parameters.status());
  if (problem.seq_q != problem.seq_kv) {
    return invalid_argument(text::concat(who, " is for self-attention: seq_q ", problem.seq_q,
                                         " and seq_kv ", problem.seq_kv,
                                         " differ; give roles of cross-attention a dense "
                                         "backend"));
  }
  const int64_t video = pattern.frames * pattern.tokens_per_frame;
  pattern.text_tokens = problem.seq_q - video;
  if (pattern.text_tokens < 0 || (!stated && pattern.text_tokens > 0)) {
    return invalid_argument(text::concat(
        who, ": ", pattern.frames, " frames of ", pattern.tokens_per_frame, " tokens are ", video,
        ", the sequence has ", problem.seq_q,
        stated ? " (accepted: the video and then text)" : "; state the tokens of a frame"));
  }
  return {};
}

Result<Pattern> read_radial(const Problem& problem, Parameters& parameters) {
  RadialPattern pattern;
  FOVEA_CHECK(read_video(problem, parameters, pattern));
  pattern.decay_factor = parameters.number("decay", pattern.decay_factor);
  FOVEA_TRY(pattern.model, parse_video_model(parameters.word("model", "wan")));
  FOVEA_TRY(pattern.rule, parse_radial_rule(parameters.word("rule", "radial")));
  return Pattern(pattern);
}

Result<Pattern> read_local(const Problem& problem, Parameters& parameters) {
  LocalWindowPattern pattern;
  FOVEA_CHECK(read_video(problem, parameters, pattern));
  pattern.window = parameters.integer("window", pattern.window, 1, kMaxBlocks);
  if (!parameters.has("grid")) return Pattern(pattern);
  const std::string grid = parameters.word("grid", {});
  const std::vector<std::string_view> sides = text::split(grid, 'x');
  const auto height = text::parse_integer(sides.front());
  const auto width = text::parse_integer(sides.back());
  if (sides.size() != 2 || !height || !width) {
    parameters.refuse("grid", grid, "HxW, for example 6x10");
  } else {
    pattern.grid = BlockWindowGrid{*height, *width};
  }
  return Pattern(pattern);
}

// Sizes that random blocks and lists state: shared by all items and heads, or one for each.
void read_planes(const Problem& problem, Parameters& parameters, int64_t& batch, int64_t& heads) {
  const auto plane = [&](std::string_view key, int64_t full) {
    const int64_t size = parameters.integer(key, 1, 1, kMaxBlocks);
    if (size != 1 && size != full) {
      parameters.refuse(key, std::to_string(size), text::concat("1, ", full));
    }
    return size;
  };
  batch = plane("batch", problem.batch);
  heads = plane("heads", problem.heads_q);
}

Result<Pattern> read_random(const Problem& problem, Parameters& parameters) {
  RandomPattern pattern;
  pattern.shape.seq_q = problem.seq_q;
  pattern.shape.seq_kv = problem.seq_kv;
  pattern.shape.block_q = block_size(parameters, "q");
  pattern.shape.block_kv = block_size(parameters, "kv");
  read_planes(problem, parameters, pattern.shape.batch, pattern.shape.heads);
  pattern.density = parameters.number("density", pattern.density);
  if (!(pattern.density >= 0 && pattern.density <= 1)) {
    parameters.refuse("density", text::format_number(pattern.density), "0 to 1");
  }
  pattern.seed = problem.seed;
  return Pattern(pattern);
}

Result<Pattern> read_topk(const Problem&, Parameters& parameters) {
  BlockTopk pattern;
  pattern.sparsity = parameters.number("sparsity", pattern.sparsity);
  pattern.block_size = block_size(parameters, "block");
  pattern.protected_prefix = parameters.integer("prefix", 0, 0, kMaxTokens);
  FOVEA_CHECK(validate(pattern));
  return Pattern(pattern);
}

Result<Pattern> read_lists(const Problem& problem, Parameters& parameters) {
  ListShape lists;
  lists.block_q = block_size(parameters, "q");
  lists.block_kv = block_size(parameters, "kv");
  lists.most = parameters.integer("most", lists.most, 0, kMaxBlocks);
  read_planes(problem, parameters, lists.batch, lists.heads);
  lists.partial = parameters.integer("partial", 0, 0, 1) == 1;
  return Pattern(lists);
}

struct Reader {
  std::string_view name;
  Result<Pattern> (*read)(const Problem&, Parameters&);
};
constexpr Reader kReaders[] = {{"radial", read_radial},
                               {"local", read_local},
                               {"random", read_random},
                               {"topk", read_topk},
                               {ListShape::kName, read_lists}};

Result<BlockMask> build_mask(const RandomPattern& pattern) {
  FOVEA_CHECK(check_shape(pattern.shape));
  const BlockMaskShape& s = pattern.shape;
  std::vector<uint8_t> matrix(static_cast<size_t>(s.batch * s.heads * s.rows() * s.columns()));
  // The top 32 bits of every draw against the density.
  const auto limit = static_cast<uint64_t>(std::llround(std::ldexp(pattern.density, 32)));
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = random_bits(pattern.seed, kBlockStream, i) >> 32 < limit ? 1 : 0;
  }
  return BlockMask::from_matrix(s, matrix);
}

}  // namespace

Result<Pattern> read_pattern(const Problem& problem) {
  const std::string& wanted = problem.sparse->name;
  std::vector<std::string_view> names;
  for (const Reader& reader : kReaders) {
    names.push_back(reader.name);
    if (reader.name != wanted) continue;
    Parameters parameters(*problem.sparse);
    FOVEA_TRY(Pattern pattern, reader.read(problem, parameters));
    FOVEA_CHECK(parameters.finish());
    return pattern;
  }
  return invalid_argument(text::concat("sparse pattern ", text::quote(wanted),
                                       " is unknown (accepted: ", text::join(names), ")",
                                       text::suggestion(wanted, names)));
}

SparsePattern to_pattern(const RadialPattern& pattern) {
  return {"radial",
          {{"frames", std::to_string(pattern.frames)},
           {"tokens", std::to_string(pattern.tokens_per_frame)},
           {"block", std::to_string(pattern.block_size)},
           {"decay", text::format_number(pattern.decay_factor)},
           {"model", std::string(name(pattern.model))},
           {"rule", std::string(name(pattern.rule))}}};
}

SparsePattern to_pattern(const LocalWindowPattern& pattern) {
  SparsePattern out{"local",
                    {{"frames", std::to_string(pattern.frames)},
                     {"tokens", std::to_string(pattern.tokens_per_frame)},
                     {"block", std::to_string(pattern.block_size)},
                     {"window", std::to_string(pattern.window)}}};
  if (pattern.grid) {
    out.parameters.emplace_back("grid",
                                text::concat(pattern.grid->height, "x", pattern.grid->width));
  }
  return out;
}

std::optional<SparsePattern> video_pattern(const AttentionSpec& spec, const Video& video) {
  if (spec.backend == backend::RADIAL_ATTN) {
    const RadialOptions options = spec.radial.value_or(RadialOptions{});
    RadialPattern pattern;
    pattern.frames = video.frames;
    pattern.tokens_per_frame = video.tokens_per_frame;
    pattern.block_size = static_cast<int32_t>(options.block_size);
    pattern.decay_factor = options.decay_factor;
    pattern.model = video.model;
    pattern.rule = parse_radial_rule(options.rule).value_or(pattern.rule);
    return to_pattern(pattern);
  }
  if (spec.backend != backend::LOCAL_SPARSE_ATTN) return std::nullopt;
  const LocalSparseOptions options = spec.local_sparse.value_or(LocalSparseOptions{});
  LocalWindowPattern pattern;
  pattern.frames = video.frames;
  pattern.tokens_per_frame = video.tokens_per_frame;
  pattern.block_size = static_cast<int32_t>(options.block_size);
  pattern.window = options.local_window_size;
  pattern.grid = video.grid;
  return to_pattern(pattern);
}

Result<std::shared_ptr<const BlockMask>> planned_mask(const Pattern& pattern) {
  return std::visit(
      [](const auto& value) -> Result<std::shared_ptr<const BlockMask>> {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, BlockTopk> || std::is_same_v<T, ListShape>) {
          return std::shared_ptr<const BlockMask>();
        } else {
          FOVEA_TRY(BlockMask mask, build_mask(value));
          return std::make_shared<const BlockMask>(std::move(mask));
        }
      },
      pattern);
}

}  // namespace fovea::sparse
