// Results go to standard output, progress to standard error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"

namespace fovea::cli {

enum class Format : uint8_t { table, json, csv };

// What the table is called by a verb that draws with characters is "text". Error invalid_argument
// lists the formats.
Result<Format> parse_format(std::string_view text, bool drawn = false);

enum class Colour : uint8_t { none, good, bad, warn, dim, strong };

// Rows of text under column names.
struct Table {
  struct Cell {
    std::string text;
    Colour colour = Colour::none;

    Cell(std::string value) : text(std::move(value)) {}
    Cell(const char* value) : text(value) {}
    Cell(std::string value, Colour shade) : text(std::move(value)), colour(shade) {}
  };
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// Field names and values of one object, a line each.
using Fields = std::vector<std::pair<std::string, Table::Cell>>;

// How results are written. Colours only on a terminal, and not with NO_COLOR.
class Terminal {
 public:
  Terminal();

  void write(std::string_view text) const;
  // Columns as wide as their widest cell, numbers to the right.
  std::string aligned(const Table& table) const;
  std::string aligned(const Fields& fields) const;
  std::string coloured(std::string_view text, Colour colour) const;

  // A line on standard error that the next one replaces; nothing unless that is a terminal.
  void progress(std::string_view text) const;
  void end_progress() const;

 private:
  bool colours_ = false;
  bool shows_progress_ = false;
};

// RFC 4180, with a header line.
std::string to_csv(const Table& table);

// "12.3 ms", "85 us", "1.2 s".
std::string duration(double milliseconds);
// Fixed number of decimals.
std::string fixed(double value, int decimals);
// Three significant digits with an exponent, e.g. "3.1e-07".
std::string scientific(double value);
// "3.4 GFLOP/s", "1.2 TFLOP/s".
std::string flop_rate(double tflops);
// "0 B", "12.0 KiB".
std::string byte_count(size_t bytes);

}  // namespace fovea::cli
