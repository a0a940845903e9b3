// The words of problem strings for the enumerators of fovea/problem.hpp.
#pragma once

#include <optional>
#include <string_view>

#include "fovea/problem.hpp"

namespace fovea {

// "none", "keys", "bool", "bias".
std::string_view name(MaskKind kind) noexcept;

// "contig", "fused_qkv", "bhsd_view", "expanded", "custom".
std::string_view name(StridesKind kind) noexcept;
std::optional<StridesKind> parse_strides_kind(std::string_view text) noexcept;

}  // namespace fovea
