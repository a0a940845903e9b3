// fovea mask: a sparse pattern as rows of # and ., as JSON or as a picture.
#include <chrono>

#include "fovea/sparse.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/mask_picture.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/tensors.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

std::string hash_text(uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[hash >> shift & 15];
  return out;
}

int64_t longest_row(const BlockMask& mask) {
  int64_t most = 0;
  for (const int32_t count : mask.counts()) most = std::max<int64_t>(most, count);
  return most;
}

class MaskVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("pattern", "radial|local|topk", &pattern_, "The pattern");
    flags.add("--frames", "N", &frames_, "Frames of the latent video");
    flags.add("--tokens-per-frame", "N", &tokens_per_frame_, "Tokens of one frame");
    flags.add("--video-tokens", "N", &video_tokens_, "Tokens of all frames, instead");
    flags.add("--text", "N", &text_tokens_, "Text tokens after the video (0)");
    flags.add("--block", "64|128", &block_, "Tokens in a block (128)");
    flags.add("--decay", "X", &decay_, "radial: scales windows of distant frames (1)");
    flags.add("--model", "wan|hunyuan", &model_, "radial: the model's family (wan)");
    flags.add("--rule", "radial|authors|telefuser", &rule_, "radial: the rule (radial)");
    flags.add("--window", "N", &window_, "local: width in blocks per axis (6)");
    flags.add("--grid", "H,W", &grid_, "local: rows and columns of blocks in a layer");
    flags.add("--problem", "S", &problem_, "topk: choose from random queries and keys of it");
    flags.add("--input", "FILE", &input_, "topk: choose from q and k of a safetensors file");
    flags.add("--prefix", "P", &prefix_, "topk: literal start of their names");
    flags.add("--sparsity", "X", &sparsity_, "topk: share of blocks left out (0.8)");
    flags.add("--protected", "N", &protected_, "topk: first keys whose blocks are kept (0)");
    flags.add("--item", "N", &item_, "topk: batch item to show (0)");
    flags.add("--head", "N", &head_, "topk: query head to show (0)");
    flags.add("--output", "F.svg", &output_, "Also draw the mask");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    FOVEA_CHECK(check_flags());
    int64_t tokens_per_frame = 0;
    if (!topk()) {
      FOVEA_TRY(tokens_per_frame, frame_tokens());
    }
    Milliseconds taken{};
    FOVEA_TRY(const BlockMask mask, topk() ? choose(taken) : build(tokens_per_frame, taken));
    if (output_) {
      FOVEA_CHECK(svg::save(*output_, mask_picture(mask, caption(tokens_per_frame))));
    }
    switch (invocation.format) {
      case Format::table:
        invocation.terminal.write(mask.text());
        break;
      case Format::csv:
        invocation.terminal.write(to_csv(summary(mask)));
        break;
      case Format::json:
        invocation.terminal.write(json(mask, tokens_per_frame, taken.count()));
        break;
    }
    return kOk;
  }

 private:
  using Milliseconds = std::chrono::duration<double, std::milli>;

  bool radial() const { return *pattern_ == "radial"; }
  bool local() const { return *pattern_ == "local"; }
  bool topk() const { return *pattern_ == "topk"; }

  Status check_flags() const {
    constexpr std::string_view kPatterns[] = {"radial", "local", "topk"};
    const std::string accepted = text::concat("(accepted: ", text::join(kPatterns), ")");
    if (!pattern_) return usage_error("fovea mask needs a pattern " + accepted);
    if (!radial() && !local() && !topk()) {
      return usage_error(text::concat("pattern ", text::quote(*pattern_), " is not a pattern ",
                                      accepted, text::suggestion(*pattern_, kPatterns)));
    }
    const auto misplaced = [&](std::string_view flag, std::string_view owner) {
      return usage_error(text::concat("fovea mask ", *pattern_, ": ", flag, " belongs to ", owner));
    };
    if (!radial() && decay_) return misplaced("--decay", "radial");
    if (!radial() && model_) return misplaced("--model", "radial");
    if (!radial() && rule_) return misplaced("--rule", "radial");
    if (!local() && window_) return misplaced("--window", "local");
    if (!local() && grid_) return misplaced("--grid", "local");
    if (!topk() && problem_) return misplaced("--problem", "topk");
    if (!topk() && input_) return misplaced("--input", "topk");
    if (!topk() && sparsity_) return misplaced("--sparsity", "topk");
    if (block_ != 64 && block_ != 128) {
      return usage_error(text::concat("--block ", block_, " is not supported (accepted: 64, 128)"));
    }
    if (topk()) {
      if (frames_ || tokens_per_frame_ || video_tokens_) {
        return usage_error("fovea mask topk: the lengths come from --problem or --input");
      }
      if (problem_.has_value() == input_.has_value()) {
        return usage_error("fovea mask topk: give either --problem or --input");
      }
      return {};
    }
    if (!frames_) return usage_error("fovea mask: --frames is missing");
    FOVEA_CHECK(at_least("--frames", *frames_, 1));
    if (tokens_per_frame_.has_value() == video_tokens_.has_value()) {
      return usage_error("fovea mask: give either --tokens-per-frame or --video-tokens");
    }
    return {};
  }

  Result<int64_t> frame_tokens() const {
    if (tokens_per_frame_) return *tokens_per_frame_;
    FOVEA_TRY(const MaskMap map, MaskMap::create(*video_tokens_, *frames_));
    return map.tokens_per_frame();
  }

  // One plane of the blocks that a call would choose.
  Result<BlockMask> choose(Milliseconds& taken) const {
    BlockTopk options;
    options.sparsity = sparsity_.value_or(options.sparsity);
    options.block_size = static_cast<int32_t>(block_);
    options.protected_prefix = protected_;
    Problem problem;
    AttentionTensors tensors;
    std::optional<SafetensorsFile> file;
    std::optional<RandomInputs> random;
    if (input_) {
      FOVEA_TRY(file, SafetensorsFile::open(*input_));
      FOVEA_TRY(tensors, attention_inputs(*file, *input_, prefix_));
      FOVEA_TRY(problem, describe(tensors, {}));
    } else {
      FOVEA_TRY(problem, parse_problem(*problem_));
      FOVEA_TRY(random, make_random_inputs(problem));
      tensors = random->tensors();
    }
    if (item_ < 0 || item_ >= problem.batch || head_ < 0 || head_ >= problem.heads_q) {
      return usage_error(text::concat("--item ", item_, " --head ", head_, ": there are ",
                                      problem.batch, " items and ", problem.heads_q, " heads"));
    }
    const std::unique_ptr<Executor> executor = make_openmp_executor();
    const auto start = std::chrono::steady_clock::now();
    FOVEA_TRY(const BlockMask all, select_blocks(options, tensors, problem, *executor));
    taken = std::chrono::steady_clock::now() - start;
    BlockMaskShape shape = all.shape();
    const int64_t first = (item_ * shape.heads + head_) * shape.rows();
    shape.batch = shape.heads = 1;
    return BlockMask::from_lists(
        shape, all.counts().subspan(static_cast<size_t>(first), static_cast<size_t>(shape.rows())),
        all.indices().subspan(static_cast<size_t>(first * all.max_count()),
                              static_cast<size_t>(shape.rows() * all.max_count())));
  }

  Result<BlockMask> build(int64_t tokens_per_frame, Milliseconds& taken) const {
    const auto start = std::chrono::steady_clock::now();
    Result<BlockMask> mask = build(tokens_per_frame);
    taken = std::chrono::steady_clock::now() - start;
    return mask;
  }

  Result<BlockMask> build(int64_t tokens_per_frame) const {
    if (radial()) {
      RadialPattern p;
      p.frames = *frames_;
      p.tokens_per_frame = tokens_per_frame;
      p.text_tokens = text_tokens_;
      p.block_size = static_cast<int32_t>(block_);
      p.decay_factor = decay_.value_or(p.decay_factor);
      FOVEA_TRY(p.model, parse_video_model(model_.value_or("wan")));
      FOVEA_TRY(p.rule, parse_radial_rule(rule_.value_or("radial")));
      return build_mask(p);
    }
    LocalWindowPattern p;
    p.frames = *frames_;
    p.tokens_per_frame = tokens_per_frame;
    p.text_tokens = text_tokens_;
    p.block_size = static_cast<int32_t>(block_);
    p.window = window_.value_or(p.window);
    if (grid_) {
      FOVEA_TRY(p.grid, parse_grid(*grid_));
    }
    return build_mask(p);
  }

  static Result<BlockWindowGrid> parse_grid(const std::string& written) {
    const std::vector<std::string_view> pieces = text::split(written, ',');
    std::optional<int64_t> height, width;
    if (pieces.size() == 2) {
      height = text::parse_integer(pieces[0]);
      width = text::parse_integer(pieces[1]);
    }
    if (!height || !width) {
      return usage_error("--grid " + text::quote(written) + " is not H,W, for example 6,10");
    }
    return BlockWindowGrid{*height, *width};
  }

  std::string caption(int64_t tokens_per_frame) const {
    if (topk()) {
      return text::concat("topk, ", problem_ ? *problem_ : *input_, ", item ", item_, ", head ",
                          head_, ", blocks of ", block_, ", sparsity ",
                          text::format_number(sparsity_.value_or(BlockTopk{}.sparsity)));
    }
    std::string out =
        text::concat(*pattern_, ", ", *frames_, " frames of ", tokens_per_frame, " tokens");
    if (text_tokens_ > 0) out += text::concat(", ", text_tokens_, " text tokens");
    out += text::concat(", blocks of ", block_);
    if (!radial()) return out + text::concat(", window ", window_.value_or(6));
    return out + text::concat(", ", model_.value_or("wan"), ", decay ",
                              text::format_number(decay_.value_or(1)), ", rule ",
                              rule_.value_or("radial"));
  }

  static Table summary(const BlockMask& mask) {
    return {
        {"rows", "columns", "active", "density", "row_min", "row_max", "empty_rows", "memory_bytes",
         "hash"},
        {{std::to_string(mask.rows()), std::to_string(mask.columns()),
          std::to_string(mask.active()), fixed(mask.density(), 6), std::to_string(mask.min_count()),
          std::to_string(longest_row(mask)), std::to_string(mask.empty_rows()),
          std::to_string(mask.memory_bytes()), hash_text(mask.hash())}}};
  }

  std::string json(const BlockMask& mask, int64_t tokens_per_frame, double milliseconds) const {
    std::vector<std::string> histogram;
    const std::vector<int64_t> counts = mask.row_histogram();
    for (size_t length = 0; length < counts.size(); ++length) {
      if (counts[length] == 0) continue;
      histogram.push_back(object_json(
          {{"blocks", std::to_string(length)}, {"rows", std::to_string(counts[length])}}));
    }
    std::vector<std::string> lines;
    const std::string drawn = mask.text();
    for (const std::string_view line : text::split(drawn, '\n')) {
      if (!line.empty()) lines.push_back(text_json(line));
    }
    const auto when = [](bool applies, std::string value) {
      return applies ? std::move(value) : std::string("null");
    };
    return object_json(
        {{"schema", text_json("fovea.mask/1")},
         {"pattern", text_json(*pattern_)},
         {"frames", when(!topk(), std::to_string(frames_.value_or(0)))},
         {"tokens_per_frame", when(!topk(), std::to_string(tokens_per_frame))},
         {"text_tokens", when(!topk(), std::to_string(text_tokens_))},
         {"seq_len", std::to_string(mask.shape().seq_q)},
         {"block_size", std::to_string(block_)},
         {"decay_factor", when(radial(), text::format_number(decay_.value_or(1)))},
         {"model", when(radial(), text_json(model_.value_or("wan")))},
         {"rule", when(radial(), text_json(rule_.value_or("radial")))},
         {"window", when(local(), std::to_string(window_.value_or(6)))},
         {"sparsity", when(topk(), text::format_number(sparsity_.value_or(BlockTopk{}.sparsity)))},
         {"rows", std::to_string(mask.rows())},
         {"columns", std::to_string(mask.columns())},
         {"active", std::to_string(mask.active())},
         {"density", text::format_number(mask.density())},
         {"row_min", std::to_string(mask.min_count())},
         {"row_max", std::to_string(longest_row(mask))},
         {"empty_rows", std::to_string(mask.empty_rows())},
         {"memory_bytes", std::to_string(mask.memory_bytes())},
         {"hash", text_json(hash_text(mask.hash()))},
         {"build_ms", text::format_number(milliseconds)},
         {"row_histogram", array_json(histogram)},
         {"mask", array_json(lines)}});
  }

  std::optional<std::string> pattern_, model_, rule_, grid_, output_, problem_, input_;
  std::string prefix_;
  std::optional<int64_t> frames_, tokens_per_frame_, video_tokens_, window_;
  std::optional<double> decay_, sparsity_;
  int64_t protected_ = 0;
  int64_t item_ = 0;
  int64_t head_ = 0;
  int64_t text_tokens_ = 0;
  int64_t block_ = 128;
};

}  // namespace

std::unique_ptr<Verb> make_mask() { return std::make_unique<MaskVerb>(); }

}  // namespace fovea::cli
