// Instruction sets that kernels are built for, and which of them this CPU has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fovea::simd {

// Each x86 level includes the ones before it.
enum class Isa : uint8_t { generic, avx2, avx512, avx512bf16, neon };

inline constexpr Isa kIsas[] = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::neon};

// "generic", "avx2", "avx512", "avx512bf16", "neon".
std::string_view name(Isa isa) noexcept;

// The inverse of name(), case-insensitive.
std::optional<Isa> parse_isa(std::string_view text) noexcept;

// The best level of the CPU that runs this. Asks the CPU, reads nothing else.
Isa probe_isa() noexcept;

// Whether code built for `needed` runs where the best level is `available`.
bool includes(Isa available, Isa needed) noexcept;

// The level to use when nobody asks for one: the best, except that on Intel cores, whose bfloat16
// dot product does less work per cycle than their float32 multiply-add, it is the level below.
Isa preferred_isa() noexcept;
// The rule behind it.
Isa preferred_isa(Isa best, bool intel) noexcept;

}  // namespace fovea::simd
