// Writing a log line. The sink and the level are set through fovea/log.hpp.
#pragma once

#include <string_view>

#include "fovea/log.hpp"

namespace fovea {

// Sends one line (without a newline) to the sink when `level` is not below the log level.
// Thread-safe. A sink must not call this.
void log(LogLevel level, std::string_view line);

// The same, but a line that this sink has had is dropped, whoever sends it: forty layers with one
// role say what happened to it once. Lines with different keys are different.
void log_once(LogLevel level, std::string_view line, std::string_view key = {});

// True when a line of this level would be written; to spare the cost of building it.
bool logged(LogLevel level) noexcept;

}  // namespace fovea
