// Exit codes that scripts rely on.
#pragma once

#include "fovea/error.hpp"

namespace fovea::cli {

enum ExitCode : int {
  kOk = 0,
  kComparisonFailed = 1,
  kUsage = 2,
  kUnsupported = 3,
  kDevice = 4,
  kInternal = 5,
};

// The exit code of an error, by its group.
ExitCode exit_code(ErrorCode code) noexcept;

}  // namespace fovea::cli
