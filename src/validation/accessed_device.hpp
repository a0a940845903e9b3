// Devices whose memory a plugin or the host program lends.
#pragma once

#include <memory>

#include "fovea/plugin.h"
#include "src/validation/device.hpp"

namespace fovea::validation {

// Through `access`. Errors: not_available for everything that it does wrong; its own.
Result<std::unique_ptr<RunDevice>> open_accessed(PlatformId platform, int32_t index,
                                                 const fovea_device_access& access);
// Through what a loaded plugin gives for the platform. Error not_available without one, with what
// to do.
Result<std::unique_ptr<RunDevice>> open_accessed(PlatformId platform, int32_t index);

}  // namespace fovea::validation
