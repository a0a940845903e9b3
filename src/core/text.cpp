#include "src/core/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fovea::text {
namespace {

constexpr size_t kLongestWord = 64;
constexpr size_t kLongestQuote = 60;
constexpr size_t kShortestStart = 3;

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

template <class Item>
std::string join_items(std::span<const Item> items, std::string_view separator) {
  std::string out;
  for (const Item& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

template <class Item>
std::optional<std::string_view> nearest_of(std::string_view word, std::span<const Item> known) {
  std::optional<std::string_view> best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const Item& candidate : known) {
    const std::string_view known_word = candidate;
    const bool begun =
        word.size() >= kShortestStart && equal_folded(known_word.substr(0, word.size()), word);
    const size_t gap =
        std::max(word.size(), known_word.size()) - std::min(word.size(), known_word.size());
    const size_t distance = begun                  ? 1
                            : gap >= best_distance ? gap
                                                   : edit_distance(word, known_word);
    if (distance >= best_distance || distance >= known_word.size()) continue;
    best = known_word;
    best_distance = distance;
  }
  return best;
}

template <class Item>
std::string suggestion_of(std::string_view word, std::span<const Item> known) {
  const std::optional<std::string_view> found = nearest(word, known);
  return found ? concat("; did you mean '", *found, "'?") : std::string();
}

// Length of the well-formed UTF-8 sequence at the start of `text`, or 0.
size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool beyond = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

template <class T>
std::optional<T> parse_whole(std::string_view text) noexcept {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string fold(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool equal_folded(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string join(std::span<const std::string_view> items, std::string_view separator) {
  return join_items(items, separator);
}
std::string join(std::span<const std::string> items, std::string_view separator) {
  return join_items(items, separator);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  const size_t longer = std::max(a.size(), b.size());
  if (longer > kLongestWord) return longer;
  using Row = std::array<size_t, kLongestWord + 1>;
  Row before{}, previous{}, current{};
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + !same});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    before = previous;
    previous = current;
  }
  return previous[b.size()];
}

std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known) {
  return nearest_of(word, known);
}
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string> known) {
  return nearest_of(word, known);
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  return suggestion_of(word, known);
}
std::string suggestion(std::string_view word, std::span<const std::string> known) {
  return suggestion_of(word, known);
}

std::optional<int64_t> parse_integer(std::string_view text) noexcept {
  return parse_whole<int64_t>(text);
}

std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept {
  return parse_whole<uint64_t>(text);
}

std::optional<double> parse_number(std::string_view text) noexcept {
  const std::optional<double> value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string format_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (size_t i = 0, shown = 0; i < text.size(); ++shown) {
    if (shown == kLongestQuote) return out += "...'";
    const size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out += '\'';
}

bool valid_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace fovea::text
