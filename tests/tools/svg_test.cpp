#include "tools/fovea/svg.hpp"

#include <gtest/gtest.h>

#include <array>

namespace fovea::svg {
namespace {

TEST(Document, EscapesText) {
  Document page(10, 20, "a < b", "c & d");
  page.text({1, 2}, "small", "\"x\" > y");
  const std::string svg = page.finish();
  EXPECT_NE(svg.find("<title>a &lt; b</title>"), std::string::npos);
  EXPECT_NE(svg.find("<desc>c &amp; d</desc>"), std::string::npos);
  EXPECT_NE(svg.find("class=\"small\">&quot;x&quot; &gt; y</text>"), std::string::npos);
}

TEST(Document, NamesNothingOutsideItself) {
  Document page(10, 20, "t", "d");
  const std::string svg = page.finish();
  EXPECT_EQ(svg.find("http", svg.find("xmlns") + 40), std::string::npos);
  EXPECT_EQ(svg.find("@import"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
}

// The bytes of a 2 x 1 image, checked once with an image viewer.
TEST(Png, MatchesTheFormat) {
  const std::array<uint8_t, 2> pixels = {0, 1};
  const std::array<Rgb, 2> palette = {{{255, 0, 0}, {0, 0, 255}}};
  const std::string png = encode_png(2, 1, pixels, palette);
  const unsigned char expected[] = {0x89, 'P',  'N',  'G',  0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00,
                                    0x00, 0x0d, 'I',  'H',  'D',  'R',  0x00, 0x00, 0x00, 0x02,
                                    0x00, 0x00, 0x00, 0x01, 0x08, 0x03, 0x00, 0x00, 0x00};
  ASSERT_GE(png.size(), sizeof expected);
  EXPECT_EQ(png.substr(0, sizeof expected),
            std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  // The check sums of an empty IEND chunk are the same in every PNG file.
  EXPECT_EQ(png.substr(png.size() - 12), std::string("\x00\x00\x00\x00IEND\xae\x42\x60\x82", 12));
}

TEST(Palette, RunsFromBackgroundToStrongest) {
  const std::vector<Rgb> light = heat_palette(HeatScale::on_light);
  const std::vector<Rgb> dark = heat_palette(HeatScale::on_dark);
  ASSERT_EQ(light.size(), 256u);
  ASSERT_EQ(dark.size(), 256u);
  EXPECT_GT(light.front().green, 240);
  EXPECT_LT(light.back().green, 40);
  EXPECT_LT(dark.front().green, 40);
  EXPECT_GT(dark.back().green, 220);
}

TEST(Save, NamesTheFileAndTheCause) {
  const Status saved = save("missing-folder/a.svg", "x");
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::invalid_file);
  EXPECT_EQ(saved.error().message,
            "cannot write 'missing-folder/a.svg': No such file or directory");
}

}  // namespace
}  // namespace fovea::svg
