// Instruction sets that kernels are built for, and which of them this CPU has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fovea::simd {

// Each x86 level includes the ones before it.
enum class Isa : uint8_t { generic, avx2, avx512, avx512bf16, amx, neon };

inline constexpr Isa kIsas[] = {Isa::generic,    Isa::avx2, Isa::avx512,
                                Isa::avx512bf16, Isa::amx,  Isa::neon};

// "generic", "avx2", "avx512", "avx512bf16", "amx", "neon".
std::string_view name(Isa isa) noexcept;

// The inverse of name(), case-insensitive.
std::optional<Isa> parse_isa(std::string_view text) noexcept;

// The best level of the CPU that runs this. Asks the CPU and, for `tiles` (AMX) only, the operating
// system as amx_refusal() does; without `tiles` the level below is the best.
Isa probe_isa(bool tiles = true) noexcept;

// Why AMX with bfloat16 cannot be used here; empty where it can. Thread-safe.
//
// A CPU that has it is not enough: Linux lets a process use tile registers only after a request
// (arch_prctl ARCH_REQ_XCOMP_PERM), which this call makes. What the request changes holds for the
// whole process, its later threads and its children until they execute another program, and cannot
// be taken back: sigaltstack() refuses stacks too small for a signal frame with tile data (8 KiB
// more). Every thread that then uses tiles gets a larger save area. Linux refuses the request while
// some thread has such a small stack installed.
std::string_view amx_refusal() noexcept;

// Whether code built for `needed` runs where the best level is `available`.
bool includes(Isa available, Isa needed) noexcept;

// The level to use when nobody asks for one: the best, except that on Intel cores without AMX,
// whose bfloat16 dot product does less work per cycle than their float32 multiply-add, it is the
// level below.
Isa preferred_isa() noexcept;
// The rule behind it.
Isa preferred_isa(Isa best, bool intel) noexcept;

}  // namespace fovea::simd
