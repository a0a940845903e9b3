// The instruction peak of one core: how many floating-point operations per second its multiply-add
// pipes can do, measured by loops that do nothing else. Speed is stated as a fraction of it.
#pragma once

#include <cstdint>

#include "src/simd/cpu_features.hpp"

namespace fovea::simd {

// A loop of independent multiply-adds; returns the operations done by `iterations` rounds.
using PeakLoop = uint64_t (*)(int64_t iterations);

// Null where this build has no such loop.
PeakLoop generic_f32_peak() noexcept;
PeakLoop avx2_f32_peak() noexcept;
PeakLoop avx512_f32_peak() noexcept;
PeakLoop avx512bf16_bf16_peak() noexcept;
PeakLoop amx_bf16_peak() noexcept;

// The loop for float32 (or, with the bfloat16 dot product, bfloat16) products on `isa`; null if
// there is none, as on Arm.
PeakLoop peak_loop(Isa isa, bool bf16_products) noexcept;

struct Peak {
  double flops = 0.0;      // per second of CPU time
  double clock_hz = 0.0;   // by a chain of dependent additions, one per cycle
  double per_cycle = 0.0;  // flops / clock_hz
};

// Dependent additions, one per cycle of the clock that `isa` runs at: cores go slower with tile
// products than without. Returns how many `iterations` rounds do.
PeakLoop amx_clock() noexcept;
PeakLoop clock_loop(Isa isa, bool bf16_products) noexcept;

// Runs both loops for about `seconds` of this thread's CPU time and keeps the best of several
// rounds. The caller checks that the loop may run here.
Peak measure_peak(PeakLoop loop, PeakLoop clock, double seconds) noexcept;

// Whether the loop ran at the limit of its pipes: within 3 % of a whole number of multiply-adds per
// cycle, or of one bfloat16 dot product every other cycle. A figure that fails this was disturbed
// and is no peak.
bool at_limit(const Peak& peak, Isa isa, bool bf16_products) noexcept;

}  // namespace fovea::simd
