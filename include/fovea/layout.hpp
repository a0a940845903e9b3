// How batch, sequence and heads are ordered in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/error.hpp"

namespace fovea {

// bshd: [batch, seq, heads, dim]; bhsd: [batch, heads, seq, dim]; packed: [tokens, heads, dim].
enum class Layout : uint8_t { bshd, bhsd, packed };

// "bshd", "bhsd" or "packed". Thread-safe; static storage.
FOVEA_API std::string_view name(Layout layout) noexcept;

// Case-insensitive; accepts the aliases BSND, NHD (bshd), BNSD, HND (bhsd), THD, TND (packed).
FOVEA_API std::optional<Layout> parse_layout(std::string_view text) noexcept;

}  // namespace fovea
