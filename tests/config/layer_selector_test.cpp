#include "src/config/layer_selector.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace fovea::config {
namespace {

using Layers = std::vector<int64_t>;

TEST(LayerSelector, reads_numbers_and_inclusive_ranges) {
  const std::pair<const char*, Layers> cases[] = {
      {"", {}},
      {"  ", {}},
      {"0", {0}},
      {"0-2,38", {0, 1, 2, 38}},
      {" 3 - 5 , 1 ,, ", {1, 3, 4, 5}},
      {"5-5", {5}},
      {"4,2-4,2", {2, 3, 4}},
      {"4095", {4095}},
  };
  for (const auto& [text, expected] : cases) {
    const auto layers = parse_layer_selector(text);
    ASSERT_TRUE(layers) << text << ": " << layers.error().message;
    EXPECT_EQ(expected, *layers) << text;
  }
}

TEST(LayerSelector, names_the_piece_it_refuses) {
  const std::pair<const char*, const char*> cases[] = {
      {"1,x", "'x' is neither a layer number nor a range; write layers as in 0-2,38"},
      {"1-", "'1-' is neither a layer number nor a range; write layers as in 0-2,38"},
      {"1-2-3", "'1-2-3' is neither a layer number nor a range; write layers as in 0-2,38"},
      {"-1", "'-1' has a negative layer; write layers as in 0-2,38"},
      {"5-3", "'5-3' runs backwards; write layers as in 0-2,38"},
      {"1.5", "'1.5' is neither a layer number nor a range; write layers as in 0-2,38"},
      {"0-9999999999", "'0-9999999999' goes beyond layer 4095; write layers as in 0-2,38"},
      {"99999999999999999999",
       "'99999999999999999999' is neither a layer number nor a range; write layers as in 0-2,38"},
  };
  for (const auto& [text, expected] : cases) {
    const auto layers = parse_layer_selector(text);
    ASSERT_FALSE(layers) << text;
    EXPECT_EQ(expected, layers.error().message);
    EXPECT_EQ(ErrorCode::invalid_config, layers.error().code);
  }
}

TEST(LayerSelector, formats_the_shortest_selector) {
  const std::pair<Layers, const char*> cases[] = {
      {{}, ""}, {{7}, "7"}, {{0, 1, 2, 38}, "0-2,38"}, {{1, 3, 5}, "1,3,5"}, {{4, 5}, "4-5"}};
  for (const auto& [layers, expected] : cases) {
    EXPECT_EQ(expected, format_layer_selector(layers));
    EXPECT_EQ(layers, *parse_layer_selector(expected));
  }
}

}  // namespace
}  // namespace fovea::config
