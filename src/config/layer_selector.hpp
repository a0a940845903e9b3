// The grammar of layer lists: "0-2,38".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"

namespace fovea::config {

// No list names more layers than this, so that "0-9999999999" is refused instead of expanded.
inline constexpr int64_t kMaxLayers = 4096;

// Comma-separated layer numbers and inclusive ranges; blanks are ignored and empty pieces skipped.
// Sorted, without repeats. Error invalid_config names the bad piece.
Result<std::vector<int64_t>> parse_layer_selector(std::string_view text);

// The shortest selector of a sorted list: {0, 1, 2, 38} is "0-2,38".
std::string format_layer_selector(std::span<const int64_t> layers);

}  // namespace fovea::config
