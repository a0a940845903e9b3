#include "tools/fovea/exit_code.hpp"

namespace fovea::cli {

ExitCode exit_code(ErrorCode code) noexcept {
  switch (static_cast<int>(code) / 100) {
    case 1:
      return kUsage;
    case 2:
      return kUnsupported;
    case 3:
    case 4:
    case 5:
      return kDevice;
    default:
      return kInternal;
  }
}

}  // namespace fovea::cli
