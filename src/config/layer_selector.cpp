#include "src/config/layer_selector.hpp"

#include <algorithm>

#include "src/core/text.hpp"

namespace fovea::config {
namespace {

Error bad_piece(std::string_view piece, std::string_view why) {
  return {ErrorCode::invalid_config,
          text::concat(text::quote(piece), ' ', why, "; write layers as in 0-2,38"),
          {}};
}

}  // namespace

Result<std::vector<int64_t>> parse_layer_selector(std::string_view text) {
  std::vector<bool> listed(kMaxLayers);
  for (std::string_view raw : text::split(text, ',')) {
    const std::string_view piece = text::trim(raw);
    if (piece.empty()) continue;
    const size_t dash = piece.find('-', 1);
    const auto first = text::parse_integer(text::trim(piece.substr(0, dash)));
    const auto last = dash == std::string_view::npos
                          ? first
                          : text::parse_integer(text::trim(piece.substr(dash + 1)));
    if (!first || !last) return bad_piece(piece, "is neither a layer number nor a range");
    if (*first < 0 || *last < 0) return bad_piece(piece, "has a negative layer");
    if (*first > *last) return bad_piece(piece, "runs backwards");
    if (*last >= kMaxLayers) {
      return bad_piece(piece, text::concat("goes beyond layer ", kMaxLayers - 1));
    }
    std::fill(listed.begin() + *first, listed.begin() + *last + 1, true);
  }
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < kMaxLayers; ++layer) {
    if (listed[static_cast<size_t>(layer)]) layers.push_back(layer);
  }
  return layers;
}

std::string format_layer_selector(std::span<const int64_t> layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(layers[i]);
    if (last > i) out += text::concat('-', layers[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace fovea::config
