// Log lines go to one sink that the host program may replace.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "fovea/error.hpp"

namespace fovea {

enum class LogLevel : uint8_t { debug, info, warning, error, off };

FOVEA_API std::string_view name(LogLevel level) noexcept;
// Case-insensitive; nothing for an unknown level.
FOVEA_API std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink; an empty one restores the default (one line on standard error). The sink may
// be called from any thread, one call at a time; it must not log. Thread-safe.
FOVEA_API void set_log_sink(LogSink sink);
// Lines below the level are dropped. The start value is FOVEA_LOG, else warning. Thread-safe.
FOVEA_API void set_log_level(LogLevel level) noexcept;
FOVEA_API LogLevel log_level() noexcept;

}  // namespace fovea
