// What the kernels of vendor packages accept, as far as their documentation says it.
#pragma once

#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/config.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/problem.hpp"
#include "fovea/reason.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {

// The row of a name, which a package provides on this platform. Its path and instance names are not
// used.
Instance package_kernel(BackendName backend, PlatformId platform);

// Whether the kernels have a variant that skips tiles.
bool skips_tiles(BackendName backend) noexcept;
// The spec's quant block makes the arithmetic coarser than the problem's type.
bool quantises(const AttentionSpec* spec, DType dtype) noexcept;

// What the kernels cannot honour of an entry's options for this call on this device.
std::vector<Reason> option_refusals(const AttentionSpec& spec, const Problem& problem,
                                    const DeviceFacts& facts);

}  // namespace fovea::backends
