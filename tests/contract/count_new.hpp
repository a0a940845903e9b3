// Counts allocations of the whole test program.
#pragma once

#include <cstdint>

namespace fovea::contract {

// Calls of operator new, in all threads, since the start.
int64_t allocations() noexcept;

}  // namespace fovea::contract
