// What a device and its packages leave of a quant block.
#pragma once

#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/options.hpp"
#include "fovea/reason.hpp"

namespace fovea::platform {

// Why the backend cannot honour the block on a device with these facts. A version that is not
// stated or not understood refuses nothing. Pure.
std::vector<Reason> quant_refusals(BackendName backend, const QuantOptions& quant,
                                   const DeviceFacts& facts);

}  // namespace fovea::platform
