// Twelve independent accumulators per round: enough to cover the latency of two pipes.
#pragma once

#include <cstdint>

#define FOVEA_REPEAT_12(macro)                                                              \
  macro(0) macro(1) macro(2) macro(3) macro(4) macro(5) macro(6) macro(7) macro(8) macro(9) \
      macro(10) macro(11)

// Defines `function` from one instruction "op source, source, accumulator" on `type` registers.
#define FOVEA_PEAK_LOOP(function, type, instruction, operations)                   \
  uint64_t function(int64_t iterations) {                                          \
    const type a = {};                                                             \
    type c0{}, c1{}, c2{}, c3{}, c4{}, c5{}, c6{}, c7{}, c8{}, c9{}, c10{}, c11{}; \
    for (int64_t i = 0; i < iterations; ++i) {                                     \
      FOVEA_REPEAT_12(FOVEA_PEAK_STEP_##instruction)                               \
    }                                                                              \
    return static_cast<uint64_t>(iterations) * 12 * (operations);                  \
  }
#define FOVEA_PEAK_STEP_vfmadd(n) asm volatile("vfmadd231ps %1,%1,%0" : "+v"(c##n) : "v"(a));
#define FOVEA_PEAK_STEP_vdpbf16(n) asm volatile("vdpbf16ps %1,%1,%0" : "+v"(c##n) : "v"(a));
