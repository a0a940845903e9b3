// Writes SVG pictures that read well on light and dark backgrounds. Colours come from classes,
// whose two palettes stand in the document's style sheet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"

namespace fovea::svg {

struct Point {
  double x = 0;
  double y = 0;
};

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// Classes for shapes and lines: accent, second, muted, good, bad, card, rule. For text: title,
// heading, body, small, mono, strong; each may be combined with a shape class ("small muted").
class Document {
 public:
  // `description` is read to people who cannot see the picture.
  Document(double width, double height, std::string_view title, std::string_view description);

  enum class Anchor : uint8_t { start, middle, end };
  void text(Point at, std::string_view classes, std::string_view text,
            Anchor anchor = Anchor::start);
  // Text running upwards, centred on `at`.
  void vertical_text(Point at, std::string_view classes, std::string_view text);
  void rectangle(Box box, std::string_view classes, double radius = 0);
  void line(Point from, Point to, std::string_view classes, double width = 1);
  void dashed_line(Point from, Point to, std::string_view classes, double width = 1);
  void circle(Point centre, double radius, std::string_view classes);
  // A PNG file's bytes, stretched without smoothing. `classes` may be "light" or "dark": then it
  // shows on that background only.
  void image(Box box, std::string_view png, std::string_view classes = {});

  std::string finish() const;

 private:
  void attribute(std::string_view name, double value);
  std::string body_;
  std::string head_;
};

struct Rgb {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
};

// The colours of a heat map, dark to bright or bright to dark, for values 0 to 255.
enum class HeatScale : uint8_t { on_light, on_dark };
std::vector<Rgb> heat_palette(HeatScale scale);

// An indexed PNG: `pixels` holds height rows of width palette indices.
std::string encode_png(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       std::span<const Rgb> palette);

// Error invalid_file with the system's reason.
Status save(const std::string& path, std::string_view text);

}  // namespace fovea::svg
