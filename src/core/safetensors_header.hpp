// The JSON header of a safetensors file: element type names and printing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "src/core/safetensors.hpp"

namespace fovea {

// The header key that holds text, not a tensor.
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// "F32", "BF16", ...; empty for a type without a name in the format.
std::string_view safetensors_name(DType dtype) noexcept;
std::optional<DType> parse_safetensors_dtype(std::string_view text) noexcept;

// The header as JSON, without padding.
std::string print_safetensors_header(std::span<const SafetensorsEntry> entries,
                                     std::span<const std::pair<std::string, std::string>> metadata);

}  // namespace fovea
