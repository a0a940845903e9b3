#include "src/config/json_reader.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/core/text.hpp"

namespace fovea::config {
namespace {

// Builds the tree from parser events; nothing throws.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Problems& problems) : problems_(problems) {}

  bool null() override { return put(Value{}); }
  bool boolean(bool value) override { return put(Value::of(value)); }
  bool number_integer(int64_t value) override { return put(Value::of(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value <= INT64_MAX) return put(Value::of(static_cast<int64_t>(value)));
    Value number = Value::of(static_cast<double>(value));
    number.text = std::to_string(value);
    return put(std::move(number));
  }
  bool number_float(double value, const std::string& digits) override {
    Value number = Value::of(value);
    number.text = digits;
    return put(std::move(number));
  }
  bool string(std::string& value) override { return put(Value::of(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Value::object()); }
  bool start_array(size_t) override { return open(Value::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& key) override {
    Frame& frame = frames_.back();
    frame.duplicate = !frame.seen.insert(key).second;
    frame.key = std::move(key);
    if (frame.duplicate) {
      problems_.add(path_of_current(), ReasonCode::option_value, "duplicate key; write it once",
                    frame.key);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    overflow_ = dynamic_cast<const nlohmann::detail::out_of_range*>(&error) != nullptr;
    return false;
  }

  bool too_deep() const noexcept { return too_deep_; }
  size_t position() const noexcept { return position_; }
  bool overflow() const noexcept { return overflow_; }
  Value take() { return std::move(root_); }

 private:
  struct Frame {
    Value value;
    std::string key;
    bool duplicate = false;
    std::unordered_set<std::string> seen;
  };

  Path path_of_current() const {
    Path path;
    for (const Frame& frame : frames_) {
      path = frame.value.is_object() ? path / frame.key : path[frame.value.items.size()];
    }
    return path;
  }

  bool open(Value container) {
    too_deep_ = frames_.size() >= kMaxDepth;
    if (too_deep_) return false;
    frames_.push_back({std::move(container), {}, false, {}});
    return true;
  }

  bool close() {
    Value done = std::move(frames_.back().value);
    frames_.pop_back();
    return put(std::move(done));
  }

  bool put(Value value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (!frame.value.is_object()) {
      frame.value.items.push_back(std::move(value));
    } else if (!frame.duplicate) {
      frame.value.keys.push_back(frame.key);
      frame.value.items.push_back(std::move(value));
    }
    return true;
  }

  Problems& problems_;
  Value root_;
  std::vector<Frame> frames_;
  bool too_deep_ = false;
  bool overflow_ = false;
  size_t position_ = 0;
};

constexpr size_t kShown = 12;

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '+' || c == '-' || c == '.';
}

// Where the word begins that `at` belongs to, or that broke off right before it.
size_t word_start(std::string_view text, size_t at) {
  size_t start = at;
  while (start > 0 && in_word(text[start - 1])) --start;
  if (start == at || in_word(text[at])) return start;
  const std::string_view word = text.substr(start, at - start);
  const bool complete = word == "true" || word == "false" || word == "null" ||
                        word.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  return complete ? at : start;
}

// What people coming from another notation write.
std::string_view syntax_hint(std::string_view rest) {
  const auto starts = [&](std::string_view word) { return rest.substr(0, word.size()) == word; };
  if (starts("NaN") || starts("Inf") || starts("-Inf") || starts("nan") || starts("inf") ||
      starts("-nan") || starts("-inf")) {
    return "; JSON has no NaN and no infinity";
  }
  if (starts("True") || starts("False")) return "; JSON writes true and false";
  if (starts("None")) return "; JSON writes null";
  if (starts("'")) return "; JSON strings stand in double quotes";
  if (starts("/") || starts("#")) return "; JSON has no comments";
  if (starts("}") || starts("]")) return "; is there a comma too many, or a value missing?";
  return {};
}

bool inside_string(std::string_view before) {
  bool inside = false;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == '\\') {
      ++i;
    } else if (before[i] == '"') {
      inside = !inside;
    }
  }
  return inside;
}

int64_t line_of(std::string_view text, size_t at) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
}

std::string place(std::string_view text, size_t at) {
  const size_t line_start = text.substr(0, at).rfind('\n') + 1;  // npos + 1 is 0
  return text::concat("line ", line_of(text, at), ", column ", at - line_start + 1);
}

}  // namespace

Result<Value> read_json(std::string_view text, std::string_view origin, Problems& problems) {
  // The parser would take a zero byte for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Error{ErrorCode::invalid_config,
                 text::concat(origin, ": not valid JSON at ", place(text, zero), ": a zero byte"),
                 {}};
  }
  Builder builder(problems);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (complete) return builder.take();
  const auto failure = [&](std::string message) {
    return Error{ErrorCode::invalid_config, text::concat(origin, ": ", message), {}};
  };
  if (builder.too_deep()) {
    return failure(text::concat("nested deeper than ", kMaxDepth, " levels"));
  }
  // The position counts the characters up to and including the one that did not fit.
  if (builder.position() > text.size()) return failure("not valid JSON: the text ends too early");
  size_t start = builder.position() > 0 ? builder.position() - 1 : 0;
  start = word_start(text, std::min(start, text.size() - 1));
  std::string_view shown = text.substr(start, kShown);
  shown = shown.substr(0, shown.find_first_of("\r\n"));
  const size_t at = std::min(builder.position(), text.size()) - 1;
  if (text[at] == '\n' && inside_string(text.substr(0, at))) {
    return failure(
        text::concat("not valid JSON: a string is not closed on line ", line_of(text, at)));
  }
  if (shown.empty()) {
    return failure(
        text::concat("not valid JSON at ", place(text, start), ": unexpected line break"));
  }
  if (builder.overflow()) {
    const auto end =
        std::find_if_not(text.begin() + static_cast<ptrdiff_t>(start), text.end(), in_word);
    shown = text.substr(start, static_cast<size_t>(end - text.begin()) - start);
    return failure(
        text::concat(place(text, start), ": the number ", text::quote(shown), " is too large"));
  }
  return failure(text::concat("not valid JSON at ", place(text, start), ": unexpected ",
                              text::quote(shown), syntax_hint(text.substr(start))));
}

}  // namespace fovea::config
