// A backend of a few narrow kernels, to see every reason that an instance table can give. It
// computes with the oracle.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::property {

std::shared_ptr<const Backend> make_narrow_backend();

}  // namespace fovea::property
