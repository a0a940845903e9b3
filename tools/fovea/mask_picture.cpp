#include "tools/fovea/mask_picture.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "src/core/text.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

namespace {

constexpr double kMargin = 48;
constexpr double kTop = 96;
constexpr double kSide = 600;  // of the longer edge

constexpr std::array<svg::Rgb, 2> kOnLight = {{{238, 240, 244}, {29, 78, 216}}};
constexpr std::array<svg::Rgb, 2> kOnDark = {{{36, 40, 48}, {125, 170, 255}}};

}  // namespace

std::string mask_picture(const BlockMask& mask, std::string_view caption) {
  const int64_t rows = mask.rows();
  const int64_t columns = mask.columns();
  const double cell = kSide / static_cast<double>(std::max(rows, columns));
  const svg::Box box{kMargin, kTop, cell * static_cast<double>(columns),
                     cell * static_cast<double>(rows)};
  const std::vector<uint8_t> all = mask.matrix();
  const std::span pixels(all.data(), static_cast<size_t>(rows * columns));
  svg::Document page(2 * kMargin + kSide, kTop + box.height + kMargin, "Blocks that are read",
                     text::concat("Rows are blocks of queries, columns blocks of keys: ", caption));
  page.text({kMargin, 44}, "title", "Blocks that are read");
  page.text({kMargin, 68}, "small muted", caption);
  page.text({kMargin, 86}, "small muted",
            text::concat(rows, " x ", columns, " blocks, density ", fixed(mask.density(), 4),
                         ", empty rows ", mask.empty_rows()));
  page.image(box, svg::encode_png(columns, rows, pixels, kOnLight), "light");
  page.image(box, svg::encode_png(columns, rows, pixels, kOnDark), "dark");
  page.text({box.x + box.width / 2, box.y + box.height + 24}, "small muted", "blocks of keys",
            svg::Document::Anchor::middle);
  page.vertical_text({kMargin - 16, box.y + box.height / 2}, "small muted", "blocks of queries");
  return page.finish();
}

}  // namespace fovea::cli
