#include "src/core/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "src/core/checked_math.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using std::string_view;
using text::concat;
using text::quote;

// Upstream readers refuse longer headers too.
constexpr uint64_t kMaxHeader = 100'000'000;

struct DTypeName {
  string_view text;
  DType dtype;
};
// The last rows can be read and written but are no operand of attention.
constexpr DTypeName kDTypes[] = {
    {"F32", kF32},       {"F16", kF16},           {"BF16", kBF16},        {"BOOL", kBool},
    {"U8", kU8},         {"I32", kI32},           {"I64", kI64},          {"F64", kF64},
    {"I8", {0, 8, 1}},   {"I16", {0, 16, 1}},     {"U16", {1, 16, 1}},    {"U32", {1, 32, 1}},
    {"U64", {1, 64, 1}}, {"F8_E4M3", {10, 8, 1}}, {"F8_E5M2", {12, 8, 1}}};

Error refuse(const std::string& message) { return {ErrorCode::invalid_file, message, {}}; }

// A strict reader of exactly the JSON that a header may hold. It never recurses.
class HeaderReader {
 public:
  HeaderReader(string_view json, size_t data_bytes) : json_(json), data_bytes_(data_bytes) {}

  Result<SafetensorsHeader> read() {
    if (!text::valid_utf8(json_)) return refuse("the header is not valid UTF-8");
    if (!json_.starts_with('{')) return refuse("the header does not start with '{'");
    FOVEA_CHECK(object("the header", [this](std::string key) { return member(std::move(key)); }));
    skip_blanks();
    if (at_ != json_.size()) return malformed("text after the closing '}'");
    FOVEA_CHECK(check_names());
    FOVEA_CHECK(check_offsets());
    return std::move(header_);
  }

 private:
  Error malformed(string_view what) const {
    return refuse(concat("the header is not valid at byte ", at_, ": ", what));
  }

  static Error wrong(string_view tensor, string_view field, string_view what) {
    return refuse(concat("tensor ", quote(tensor), ", field ", field, ": ", what));
  }

  void skip_blanks() noexcept {
    while (at_ < json_.size() &&
           (json_[at_] == ' ' || json_[at_] == '\t' || json_[at_] == '\n' || json_[at_] == '\r'))
      ++at_;
  }

  // Takes `c` when it is the next character that is not blank.
  bool take(char c) noexcept {
    skip_blanks();
    if (at_ >= json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Reads {"key": value, ...}; `read_value(key)` reads one value.
  template <class ReadValue>
  Status object(string_view what, ReadValue read_value) {
    if (!take('{')) return malformed(concat(what, " is not an object"));
    if (take('}')) return {};
    do {
      FOVEA_TRY(std::string key, string());
      if (!take(':')) return malformed("a ':' is missing");
      FOVEA_CHECK(read_value(std::move(key)));
    } while (take(','));
    if (!take('}')) return malformed("a ',' or '}' is missing");
    return {};
  }

  // Reads [n, n, ...] of whole numbers in 0..2^63-1.
  Result<std::vector<int64_t>> numbers(string_view tensor, string_view field) {
    std::vector<int64_t> out;
    if (!take('[')) return wrong(tensor, field, "a list of whole numbers was expected");
    if (take(']')) return out;
    do {
      skip_blanks();
      const size_t start = at_;
      while (at_ < json_.size() && is_number(json_[at_])) ++at_;
      const string_view word = json_.substr(start, std::max<size_t>(at_ - start, 1));
      const std::optional<int64_t> value = text::parse_integer(word);
      if (!value || *value < 0 || (word.size() > 1 && word[0] == '0') || word[0] == '-')
        return wrong(tensor, field,
                     concat(quote(word), " is not a whole number in 0..9223372036854775807"));
      out.push_back(*value);
    } while (take(','));
    if (!take(']')) return malformed("a ',' or ']' is missing");
    return out;
  }

  static bool is_number(char c) noexcept {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  }

  Result<std::string> string() {
    if (!take('"')) return malformed("a string was expected");
    std::string out;
    while (at_ < json_.size()) {
      const char c = json_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) {
        --at_;
        return malformed("a control character in a string");
      }
      if (c != '\\') {
        out += c;
        continue;
      }
      FOVEA_CHECK(escape(out));
    }
    return malformed("a string is not closed");
  }

  Status escape(std::string& out) {
    constexpr string_view kNames = "\"\\/bfnrt";
    constexpr string_view kValues = "\"\\/\b\f\n\r\t";
    const char c = at_ < json_.size() ? json_[at_++] : '\0';
    if (const size_t i = kNames.find(c); c != '\0' && i != string_view::npos) {
      out += kValues[i];
      return {};
    }
    if (c != 'u') return malformed("an unknown escape in a string");
    FOVEA_TRY(uint32_t point, hex4());
    if (point >= 0xDC00 && point < 0xE000) return malformed("half of a surrogate pair");
    if (point >= 0xD800 && point < 0xDC00) {
      if (json_.substr(at_, 2) != "\\u") return malformed("half of a surrogate pair");
      at_ += 2;
      FOVEA_TRY(const uint32_t low, hex4());
      if (low < 0xDC00 || low >= 0xE000) return malformed("half of a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, point);
    return {};
  }

  Result<uint32_t> hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      constexpr string_view kDigits = "0123456789abcdef";
      const char c = at_ < json_.size() ? json_[at_] : '\0';
      const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
      const size_t digit = c == '\0' ? string_view::npos : kDigits.find(lower);
      if (digit == string_view::npos) return malformed("\\u needs four hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  static void append_utf8(std::string& out, uint32_t point) {
    const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (point < 0x80) {
      add(point);
    } else if (point < 0x800) {
      add(0xC0 | point >> 6);
      add(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      add(0xE0 | point >> 12);
      add(0x80 | (point >> 6 & 0x3F));
      add(0x80 | (point & 0x3F));
    } else {
      add(0xF0 | point >> 18);
      add(0x80 | (point >> 12 & 0x3F));
      add(0x80 | (point >> 6 & 0x3F));
      add(0x80 | (point & 0x3F));
    }
  }

  Status member(std::string key) {
    if (key == kSafetensorsMetadata) return metadata();
    SafetensorsEntry entry;
    entry.name = std::move(key);
    std::optional<string_view> dtype_text;
    bool has_shape = false, has_offsets = false;
    const auto field = [&](std::string word) -> Status {
      if (word == "dtype") {
        if (dtype_text) return wrong(entry.name, word, "it is given twice");
        FOVEA_TRY(const std::string text, string());
        const std::optional<DType> dtype = parse_safetensors_dtype(text);
        if (!dtype) return unknown_dtype(entry.name, text);
        entry.dtype = *dtype;
        dtype_text = safetensors_name(*dtype);
      } else if (word == "shape") {
        if (std::exchange(has_shape, true)) return wrong(entry.name, word, "it is given twice");
        FOVEA_TRY(entry.shape, numbers(entry.name, word));
      } else if (word == "data_offsets") {
        if (std::exchange(has_offsets, true)) return wrong(entry.name, word, "it is given twice");
        FOVEA_CHECK(offsets(entry));
      } else {
        return wrong(entry.name, quote(word),
                     "it is not known (known: dtype, shape, data_offsets)");
      }
      return {};
    };
    FOVEA_CHECK(object(concat("tensor ", quote(entry.name)), field));
    if (!dtype_text) return wrong(entry.name, "dtype", "it is missing");
    if (!has_shape) return wrong(entry.name, "shape", "it is missing");
    if (!has_offsets) return wrong(entry.name, "data_offsets", "it is missing");
    FOVEA_CHECK(check_size(entry, *dtype_text));
    header_.entries.push_back(std::move(entry));
    return {};
  }

  static Error unknown_dtype(string_view tensor, string_view text) {
    std::vector<string_view> known;
    for (const DTypeName& row : kDTypes) known.push_back(row.text);
    return wrong(tensor, "dtype",
                 concat(quote(text), " is not known", text::suggestion(text, known),
                        " (known: ", text::join(std::span<const string_view>(known)), ")"));
  }

  Status metadata() {
    if (std::exchange(has_metadata_, true)) return refuse("__metadata__ is given twice");
    FOVEA_CHECK(object("__metadata__", [this](std::string key) -> Status {
      FOVEA_TRY(std::string value, string());
      header_.metadata.emplace_back(std::move(key), std::move(value));
      return {};
    }));
    std::sort(header_.metadata.begin(), header_.metadata.end());
    const auto twice =
        std::adjacent_find(header_.metadata.begin(), header_.metadata.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice != header_.metadata.end())
      return refuse(concat("__metadata__, field ", quote(twice->first), ": it is given twice"));
    return {};
  }

  Status offsets(SafetensorsEntry& entry) {
    FOVEA_TRY(const std::vector<int64_t> pair, numbers(entry.name, "data_offsets"));
    if (pair.size() != 2)
      return wrong(entry.name, "data_offsets",
                   concat("it has ", pair.size(), " numbers (accepted: 2, begin and end)"));
    entry.begin = static_cast<size_t>(pair[0]);
    entry.end = static_cast<size_t>(pair[1]);
    if (entry.begin > entry.end)
      return wrong(entry.name, "data_offsets",
                   concat("begin ", entry.begin, " is after end ", entry.end));
    if (entry.end > data_bytes_)
      return wrong(
          entry.name, "data_offsets",
          concat("end ", entry.end, " is beyond the ", data_bytes_, " bytes of data in the file"));
    return {};
  }

  static Status check_size(const SafetensorsEntry& entry, string_view dtype) {
    // A size of 0 empties the tensor, whatever the others are.
    int64_t bytes = static_cast<int64_t>(size_bytes(entry.dtype));
    for (int64_t size : entry.shape) bytes = saturating_multiply(bytes, std::max<int64_t>(size, 1));
    if (bytes == kMaxSize) return wrong(entry.name, "shape", "the size does not fit in 64 bits");
    if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) bytes = 0;
    if (static_cast<size_t>(bytes) != entry.end - entry.begin)
      return wrong(entry.name, "data_offsets",
                   concat("it spans ", entry.end - entry.begin, " bytes, but shape and dtype ",
                          dtype, " need ", bytes));
    return {};
  }

  Status check_names() {
    auto& entries = header_.entries;
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(),
                           [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != entries.end())
      return refuse(concat("tensor ", quote(twice->name), ", field name: it is given twice"));
    return {};
  }

  Status check_offsets() const {
    std::vector<const SafetensorsEntry*> order;
    for (const SafetensorsEntry& entry : header_.entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    size_t expected = 0;
    const SafetensorsEntry* previous = nullptr;
    for (const SafetensorsEntry* entry : order) {
      if (entry->begin < expected)
        return wrong(entry->name, "data_offsets",
                     concat("it overlaps tensor ", quote(previous->name)));
      if (entry->begin > expected)
        return wrong(
            entry->name, "data_offsets",
            concat("bytes ", expected, "..", entry->begin, " before it belong to no tensor"));
      expected = entry->end;
      previous = entry;
    }
    if (expected != data_bytes_)
      return refuse(concat("the last ", data_bytes_ - expected, " bytes belong to no tensor"));
    return {};
  }

  string_view json_;
  size_t data_bytes_;
  size_t at_ = 0;
  bool has_metadata_ = false;
  SafetensorsHeader header_;
};

void print_string(std::string& out, string_view value) {
  constexpr string_view kHex = "0123456789abcdef";
  out += '"';
  for (char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::string_view safetensors_name(DType dtype) noexcept {
  for (const DTypeName& row : kDTypes)
    if (row.dtype == dtype) return row.text;
  return {};
}

std::optional<DType> parse_safetensors_dtype(std::string_view text) noexcept {
  for (const DTypeName& row : kDTypes)
    if (row.text == text) return row.dtype;
  return std::nullopt;
}

std::string print_safetensors_header(
    std::span<const SafetensorsEntry> entries,
    std::span<const std::pair<std::string, std::string>> metadata) {
  std::string out = "{";
  if (!metadata.empty()) {
    print_string(out, kSafetensorsMetadata);
    out += ":{";
    for (const auto& [key, value] : metadata) {
      if (out.back() != '{') out += ',';
      print_string(out, key);
      out += ':';
      print_string(out, value);
    }
    out += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    if (out.size() > 1) out += ',';
    print_string(out, entry.name);
    out += concat(":{\"dtype\":\"", safetensors_name(entry.dtype), "\",\"shape\":[");
    for (size_t i = 0; i < entry.shape.size(); ++i) out += concat(i > 0 ? "," : "", entry.shape[i]);
    out += concat("],\"data_offsets\":[", entry.begin, ',', entry.end, "]}");
  }
  return out += '}';
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file) {
  uint64_t length = 0;
  if (file.size() < sizeof length)
    return refuse(concat("it has ", file.size(), " bytes, a safetensors file has at least 8"));
  std::memcpy(&length, file.data(), sizeof length);
  const size_t rest = file.size() - sizeof length;
  if (length > rest)
    return refuse(concat("the header length ", length, " is beyond the end of the file (", rest,
                         " bytes follow)"));
  if (length > kMaxHeader)
    return refuse(concat("the header length ", length, " is above the limit of ", kMaxHeader));
  const auto header_bytes = static_cast<size_t>(length);
  const auto* const json = reinterpret_cast<const char*>(file.data()) + sizeof length;
  FOVEA_TRY(SafetensorsHeader header,
            HeaderReader({json, header_bytes}, rest - header_bytes).read());
  header.data_start = sizeof length + header_bytes;
  return header;
}

}  // namespace fovea
