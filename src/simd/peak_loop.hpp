// Independent accumulators per round, enough to cover the latency of two pipes: twelve for
// multiply-adds, sixteen for the bfloat16 dot product, whose latency is up to six cycles.
#pragma once

#include <cstdint>

#define FOVEA_REPEAT_12(macro)                                                              \
  macro(0) macro(1) macro(2) macro(3) macro(4) macro(5) macro(6) macro(7) macro(8) macro(9) \
      macro(10) macro(11)
#define FOVEA_REPEAT_16(macro) FOVEA_REPEAT_12(macro) macro(12) macro(13) macro(14) macro(15)

// Defines `function` from `count` times one instruction "op source, source, accumulator" on `type`
// registers.
#define FOVEA_PEAK_LOOP(function, type, instruction, operations, count)               \
  uint64_t function(int64_t iterations) {                                             \
    const type a = {};                                                                \
    using Chain = type;                                                               \
    FOVEA_REPEAT_##count(FOVEA_PEAK_CHAIN) for (int64_t i = 0; i < iterations; ++i) { \
      FOVEA_REPEAT_##count(FOVEA_PEAK_STEP_##instruction)                             \
    }                                                                                 \
    return static_cast<uint64_t>(iterations) * (count) * (operations);                \
  }
#define FOVEA_PEAK_CHAIN(n) Chain c##n{};
#define FOVEA_PEAK_STEP_vfmadd(n) asm volatile("vfmadd231ps %1,%1,%0" : "+v"(c##n) : "v"(a));
#define FOVEA_PEAK_STEP_vdpbf16(n) asm volatile("vdpbf16ps %1,%1,%0" : "+v"(c##n) : "v"(a));
