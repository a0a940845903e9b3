// REFERENCE: the float64 oracle as a backend. Never chosen automatically.
#pragma once

#include <memory>

#include "fovea/backend.hpp"

namespace fovea::backends {

// "builtin:reference". The whole contract on the CPU; refuses sparse patterns. Stateless and
// thread-safe.
std::shared_ptr<const Backend> make_reference_backend();

}  // namespace fovea::backends
