// Prepared state that a captured CUDA graph needs.
#pragma once

#include <memory>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"

namespace fovea::cuda {

// While the stream is being captured, makes the graph hold `state`: it lives as long as the graph,
// its clones and what was instantiated from it. Outside a capture nothing happens. Thread-safe.
Status keep_while_captured(std::shared_ptr<const void> state, Stream stream);

// Drops what graphs have let go of since. They cannot do so themselves: no CUDA function may run
// where a graph is destroyed, and releasing state may free memory or unload code. To be called
// where waiting for the device is allowed, such as when a plan is made. Thread-safe.
void drop_released_states();

}  // namespace fovea::cuda
