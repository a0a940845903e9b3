// Small text helpers shared by every reader and every message.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

// A space, tab, newline, vertical tab, form feed or carriage return.
constexpr bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Without blanks at both ends.
std::string_view trim(std::string_view text) noexcept;

// ASCII letters to lower case.
std::string fold(std::string_view text);

// Equal but for the case of ASCII letters.
bool equal_folded(std::string_view a, std::string_view b) noexcept;

// The pieces between separators; always at least one.
std::vector<std::string_view> split(std::string_view text, char separator);

std::string join(std::span<const std::string_view> items, std::string_view separator = ", ");
std::string join(std::span<const std::string> items, std::string_view separator = ", ");

// Number of insertions, deletions, replacements and swaps of neighbours between the two, case
// folded. Texts longer than 64 characters are never close: the length of the longer is returned.
size_t edit_distance(std::string_view a, std::string_view b);

// The known word closest to `word`, when it is close enough to be meant: within a third of its
// length, or begun by at least three letters.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known);
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string> known);

// "; did you mean 'x'?" or nothing.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);
std::string suggestion(std::string_view word, std::span<const std::string> known);

// The whole text is one decimal integer that fits; no blanks, no '+'.
std::optional<int64_t> parse_integer(std::string_view text) noexcept;
std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept;

// The whole text is one finite decimal number that a double can hold; no blanks, no '+', no hex.
std::optional<double> parse_number(std::string_view text) noexcept;

// The shortest text that reads back as the same number; "nan", "inf", "-inf".
std::string format_number(double value);

// 'text' for messages: control characters and invalid UTF-8 escaped, cut after 60 characters.
std::string quote(std::string_view text);

// True when the bytes are well-formed UTF-8 (no overlong forms, no surrogates).
bool valid_utf8(std::string_view text) noexcept;

// concat("head_dim ", 80, ...): strings, characters and integers joined.
inline void append(std::string& out, std::string_view piece) { out += piece; }
inline void append(std::string& out, char piece) { out += piece; }
template <std::integral T>
void append(std::string& out, T piece) {
  out += std::to_string(piece);
}
template <class... Pieces>
std::string concat(const Pieces&... pieces) {
  std::string out;
  (append(out, pieces), ...);
  return out;
}

}  // namespace fovea::text
