// Single elements of any type as float64, and the roundings between float types.
#pragma once

#include <cstdint>

#include "fovea/dtype.hpp"

namespace fovea {

// Element `index` of memory holding `dtype`; bool and integers give their value. NaN for an unknown
// type.
double load_element(const void* data, DType dtype, int64_t index) noexcept;

// Rounds to nearest, ties to even; too large becomes infinity. Integers and bool take the value
// truncated. Unknown types are left alone.
void store_element(void* data, DType dtype, int64_t index, double value) noexcept;

float f16_to_float(uint16_t bits) noexcept;
uint16_t float_to_f16(float value) noexcept;
float bf16_to_float(uint16_t bits) noexcept;
uint16_t float_to_bf16(float value) noexcept;

}  // namespace fovea
