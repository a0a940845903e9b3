#include "tools/fovea/svg.hpp"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "src/core/text.hpp"

namespace fovea::svg {

namespace {

constexpr std::string_view kStyle = R"(
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; fill: #1c2330; }
.title { font-size: 26px; font-weight: 650; letter-spacing: -0.3px; }
.heading { font-size: 16px; font-weight: 650; }
.body { font-size: 14px; }
.small { font-size: 12px; }
.tiny { font-size: 10.5px; }
.figure { font-size: 22px; font-weight: 600; letter-spacing: -0.2px; }
.mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.strong { font-weight: 650; }
.page { fill: #f6f7f9; }
.card { fill: #ffffff; stroke: #e0e4ea; }
.rule { stroke: #d5dae2; }
.track { fill: #eceff3; }
.accent { fill: #2f6fde; }
.second { fill: #a3aebf; }
.good { fill: #15803d; }
.bad { fill: #c02626; }
.hidden { fill: #c9d0da; }
.edge { stroke: #8d98a8; fill: none; }
.limit { stroke: #c02626; }
text.muted { fill: #667085; }
text.accent { fill: #2459b8; }
text.good { fill: #15803d; }
text.bad { fill: #c02626; }
.dark { display: none; }
image { image-rendering: pixelated; image-rendering: crisp-edges; }
@media (prefers-color-scheme: dark) {
text { fill: #e7ebf2; }
.page { fill: #0f131a; }
.card { fill: #171c25; stroke: #2a3240; }
.rule { stroke: #343d4c; }
.track { fill: #252c38; }
.accent { fill: #6ea0ff; }
.second { fill: #5d697b; }
.good { fill: #4ade80; }
.bad { fill: #ff7b72; }
.hidden { fill: #3a4453; }
.edge { stroke: #6b778a; }
.limit { stroke: #ff7b72; }
text.muted { fill: #98a3b5; }
text.accent { fill: #8cb4ff; }
text.good { fill: #4ade80; }
text.bad { fill: #ff7b72; }
.dark { display: inline; }
.light { display: none; }
}
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

// Two decimals are finer than any screen.
std::string number(double value) { return text::format_number(std::round(value * 100) / 100); }

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kLetters[group >> (18 - 6 * j) & 63];
    }
  }
  return out;
}

void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  constexpr uint32_t kBase = 65521;
  uint32_t a = 1;
  uint32_t b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % kBase;
    b = (b + a) % kBase;
  }
  return b << 16 | a;
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const std::string body = text::concat(type, data);
  out += body;
  append_big_endian(out, crc32(body));
}

// A zlib stream of stored blocks: heat maps are small, and nothing needs a compressor.
std::string zlib_stored(std::string_view bytes) {
  constexpr size_t kBlock = 65535;
  std::string out = "\x78\x01";
  size_t at = 0;
  do {
    const size_t length = std::min(kBlock, bytes.size() - at);
    const bool last = at + length == bytes.size();
    out += last ? '\1' : '\0';
    for (const size_t field : {length, ~length}) {
      out += static_cast<char>(field & 0xff);
      out += static_cast<char>(field >> 8 & 0xff);
    }
    out += bytes.substr(at, length);
    at += length;
  } while (at < bytes.size());
  append_big_endian(out, adler32(bytes));
  return out;
}

}  // namespace

Document::Document(double width, double height, std::string_view title,
                   std::string_view description) {
  head_ =
      text::concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width),
                   "\" height=\"", number(height), "\" viewBox=\"0 0 ", number(width), " ",
                   number(height), "\" role=\"img\">\n<title>", escaped(title), "</title>\n<desc>",
                   escaped(description), "</desc>\n<style>", kStyle, "</style>\n");
  rectangle({0, 0, width, height}, "page");
}

void Document::attribute(std::string_view name, double value) {
  body_ += text::concat(" ", name, "=\"", number(value), "\"");
}

void Document::text(Point at, std::string_view classes, std::string_view text, Anchor anchor) {
  body_ += "<text";
  attribute("x", at.x);
  attribute("y", at.y);
  if (anchor == Anchor::middle) body_ += " text-anchor=\"middle\"";
  if (anchor == Anchor::end) body_ += " text-anchor=\"end\"";
  body_ += text::concat(" class=\"", classes, "\">", escaped(text), "</text>\n");
}

void Document::vertical_text(Point at, std::string_view classes, std::string_view text) {
  body_ += text::concat("<text transform=\"translate(", number(at.x), " ", number(at.y),
                        ") rotate(-90)\" text-anchor=\"middle\" class=\"", classes, "\">",
                        escaped(text), "</text>\n");
}

void Document::rectangle(Box box, std::string_view classes, double radius) {
  body_ += "<rect";
  attribute("x", box.x);
  attribute("y", box.y);
  attribute("width", box.width);
  attribute("height", box.height);
  if (radius > 0) attribute("rx", radius);
  body_ += text::concat(" class=\"", classes, "\"/>\n");
}

void Document::line(Point from, Point to, std::string_view classes, double width) {
  body_ += "<line";
  attribute("x1", from.x);
  attribute("y1", from.y);
  attribute("x2", to.x);
  attribute("y2", to.y);
  attribute("stroke-width", width);
  body_ += text::concat(" class=\"", classes, "\"/>\n");
}

void Document::dashed_line(Point from, Point to, std::string_view classes, double width) {
  body_ += "<g stroke-dasharray=\"3 3\">";
  line(from, to, classes, width);
  body_ += "</g>\n";
}

void Document::circle(Point centre, double radius, std::string_view classes) {
  body_ += "<circle";
  attribute("cx", centre.x);
  attribute("cy", centre.y);
  attribute("r", radius);
  body_ += text::concat(" class=\"", classes, "\"/>\n");
}

void Document::image(Box box, std::string_view png, std::string_view classes) {
  body_ += "<image";
  attribute("x", box.x);
  attribute("y", box.y);
  attribute("width", box.width);
  attribute("height", box.height);
  body_ += text::concat(" preserveAspectRatio=\"none\" class=\"", classes,
                        "\" href=\"data:image/png;base64,", base64(png), "\"/>\n");
}

std::string Document::finish() const { return head_ + body_ + "</svg>\n"; }

std::vector<Rgb> heat_palette(HeatScale scale) {
  // Neighbouring stops differ evenly in lightness, so equal steps look equal.
  static constexpr std::array<Rgb, 6> kOnDark = {{{18, 22, 32},
                                                  {52, 40, 110},
                                                  {126, 47, 140},
                                                  {206, 66, 104},
                                                  {247, 141, 69},
                                                  {252, 236, 160}}};
  static constexpr std::array<Rgb, 6> kOnLight = {{{253, 253, 246},
                                                   {205, 235, 200},
                                                   {110, 195, 195},
                                                   {45, 135, 190},
                                                   {48, 75, 155},
                                                   {33, 24, 82}}};
  const auto& stops = scale == HeatScale::on_dark ? kOnDark : kOnLight;
  std::vector<Rgb> palette(256);
  for (size_t i = 0; i < palette.size(); ++i) {
    const double position = static_cast<double>(i) / 255.0 * static_cast<double>(stops.size() - 1);
    const size_t below = std::min(static_cast<size_t>(position), stops.size() - 2);
    const double share = position - static_cast<double>(below);
    const auto mix = [&](uint8_t a, uint8_t b) {
      return static_cast<uint8_t>(std::lround(std::lerp(double(a), double(b), share)));
    };
    const Rgb& a = stops[below];
    const Rgb& b = stops[below + 1];
    palette[i] = {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
  }
  return palette;
}

std::string encode_png(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       std::span<const Rgb> palette) {
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  header += "\x08\x03";            // eight bits, indexed
  header += std::string(3, '\0');  // deflate, plain filters, not interlaced
  std::string colours;
  for (const Rgb& colour : palette) {
    for (const uint8_t part : {colour.red, colour.green, colour.blue}) {
      colours += static_cast<char>(part);
    }
  }
  std::string rows;
  for (int64_t y = 0; y < height; ++y) {
    rows += '\0';
    const auto row = pixels.subspan(static_cast<size_t>(y * width), static_cast<size_t>(width));
    rows.append(row.begin(), row.end());
  }
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "PLTE", colours);
  append_chunk(out, "IDAT", zlib_stored(rows));
  append_chunk(out, "IEND", {});
  return out;
}

Status save(const std::string& path, std::string_view text) {
  const auto failed = [&] {
    return Error{ErrorCode::invalid_file,
                 text::concat("cannot write ", text::quote(path), ": ", std::strerror(errno)),
                 {}};
  };
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return failed();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return failed();
  return {};
}

}  // namespace fovea::svg
