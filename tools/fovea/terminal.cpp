#include "tools/fovea/terminal.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "src/core/text.hpp"

namespace fovea::cli {

namespace {

std::string_view escape(Colour colour) {
  switch (colour) {
    case Colour::good:
      return "\x1b[32m";
    case Colour::bad:
      return "\x1b[31m";
    case Colour::warn:
      return "\x1b[33m";
    case Colour::dim:
      return "\x1b[2m";
    case Colour::strong:
      return "\x1b[1m";
    case Colour::none:
      break;
  }
  return "";
}

// Columns of a terminal: code points, good enough for what the tools print.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool numeric(const std::string& text) {
  return !text.empty() && (text[0] == '-' ? text.size() > 1 && std::isdigit(text[1]) != 0
                                          : std::isdigit(static_cast<unsigned char>(text[0])) != 0);
}

std::string printed(const char* format, double value) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, value);
  return {buffer.data(), static_cast<size_t>(std::clamp(length, 0, 63))};
}

bool colours_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

Result<Format> parse_format(std::string_view text, bool drawn) {
  std::array<std::string_view, 3> formats = {"table", "json", "csv"};
  if (drawn) formats.front() = "text";
  for (size_t i = 0; i < formats.size(); ++i) {
    if (text == formats[i]) return static_cast<Format>(i);
  }
  return Error{ErrorCode::invalid_argument,
               text::concat("--format ", text::quote(text), " is not a format (accepted: ",
                            text::join(formats), ")", text::suggestion(text, formats)),
               {}};
}

Terminal::Terminal()
    : colours_(isatty(STDOUT_FILENO) != 0 && colours_wanted()),
      shows_progress_(isatty(STDERR_FILENO) != 0) {}

void Terminal::write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string Terminal::coloured(std::string_view text, Colour colour) const {
  if (!colours_ || colour == Colour::none) return std::string(text);
  return text::concat(escape(colour), text, "\x1b[0m");
}

std::string Terminal::aligned(const Table& table) const {
  const size_t count = table.columns.size();
  std::vector<size_t> widths(count);
  std::vector<bool> right(count, !table.rows.empty());
  for (size_t c = 0; c < count; ++c) widths[c] = width(table.columns[c]);
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], width(row[c].text));
      if (!numeric(row[c].text) && row[c].text != "-") right[c] = false;
    }
  }
  std::string out;
  const auto add = [&](size_t c, const std::string& text, Colour colour) {
    const std::string padding(widths[c] - width(text), ' ');
    if (c > 0) out += "  ";
    if (right[c]) out += padding;
    out += coloured(text, colour);
    if (!right[c] && c + 1 < count) out += padding;
  };
  for (size_t c = 0; c < count; ++c) add(c, table.columns[c], Colour::strong);
  out += '\n';
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) add(c, row[c].text, row[c].colour);
    out += '\n';
  }
  return out;
}

std::string Terminal::aligned(const Fields& fields) const {
  size_t widest = 0;
  for (const auto& [name, cell] : fields) widest = std::max(widest, width(name));
  std::string out;
  for (const auto& [name, cell] : fields) {
    out += coloured(name, Colour::dim);
    out += std::string(widest - width(name) + 2, ' ');
    out += coloured(cell.text, cell.colour);
    out += '\n';
  }
  return out;
}

void Terminal::progress(std::string_view text) const {
  if (!shows_progress_) return;
  std::fprintf(stderr, "\r\x1b[K%.*s", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
}

void Terminal::end_progress() const {
  if (shows_progress_) std::fputs("\r\x1b[K", stderr);
}

std::string to_csv(const Table& table) {
  std::string out;
  const auto add = [&](size_t c, const std::string& text) {
    if (c > 0) out += ',';
    if (text.find_first_of(",\"\n") == std::string::npos) {
      out += text;
      return;
    }
    out += '"';
    for (const char letter : text) {
      if (letter == '"') out += '"';
      out += letter;
    }
    out += '"';
  };
  for (size_t c = 0; c < table.columns.size(); ++c) add(c, table.columns[c]);
  out += "\n";
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) add(c, row[c].text);
    out += "\n";
  }
  return out;
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return {buffer.data(), static_cast<size_t>(std::clamp(length, 0, 63))};
}

std::string scientific(double value) { return printed("%.1e", value); }

std::string duration(double milliseconds) {
  if (milliseconds < 0.1) return fixed(milliseconds * 1e3, 1) + " us";
  if (milliseconds < 1000) return printed("%.3g", milliseconds) + " ms";
  return fixed(milliseconds / 1e3, 2) + " s";
}

std::string flop_rate(double tflops) {
  if (tflops < 1) return fixed(tflops * 1e3, 1) + " GFLOP/s";
  return fixed(tflops, 2) + " TFLOP/s";
}

std::string byte_count(size_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fixed(value, unit == 0 ? 0 : 1) + " " + kUnits[unit];
}

}  // namespace fovea::cli
