// Kernels of packages that come through the C interface.
#pragma once

#include "fovea/package_kernel.hpp"
#include "fovea/plugin.h"

namespace fovea::plugin {

// `given` is read as far as it reaches and has a package and a run function, which stay valid as
// long as the kernel. Errors: those of its validation record.
Result<PackageKernel> make_kernel(const fovea_package& given);

// A package of a plugin. Error not_available: null, wrong size, without a name or a run function; a
// validation record that does not count.
Result<PackageKernel> read_package(const fovea_package* given, std::string_view who);

}  // namespace fovea::plugin
