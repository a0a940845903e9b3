// Counts allocations of the whole test program.
#pragma once

#include <cstdint>

// ThreadSanitizer brings its own operator new, which a program cannot replace.
#if defined(__SANITIZE_THREAD__)
#define FOVEA_COUNTS_NEW 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FOVEA_COUNTS_NEW 0
#endif
#endif
#ifndef FOVEA_COUNTS_NEW
#define FOVEA_COUNTS_NEW 1
#endif

namespace fovea::contract {

// Without counting, allocations() stays 0.
inline constexpr bool kCountsNew = FOVEA_COUNTS_NEW != 0;

// Calls of operator new, in all threads, since the start.
int64_t allocations() noexcept;

}  // namespace fovea::contract
