// JSON text to a Value tree. The only place that knows the JSON library is json_reader.cpp.
#pragma once

#include <string_view>

#include "fovea/error.hpp"
#include "src/config/problems.hpp"
#include "src/config/value.hpp"

namespace fovea::config {

inline constexpr size_t kMaxDepth = 64;

// Strict JSON. Duplicate keys go to `problems` and the first one stands, so that everything wrong
// is found in one go; text that is not JSON, or nests deeper than kMaxDepth, is an error
// (invalid_config) with line and column.
Result<Value> read_json(std::string_view text, std::string_view origin, Problems& problems);

}  // namespace fovea::config
