// Instruction sets of CPU kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fovea/error.hpp"

namespace fovea {

// x86 sets in rising order; each includes the ones before it. neon stands alone.
enum class Isa : uint8_t { generic, avx2, avx512, avx512bf16, neon };

// "generic", "avx2", ... Static storage.
std::string_view name(Isa isa) noexcept;
// Case-insensitive.
std::optional<Isa> parse_isa(std::string_view text) noexcept;
// The accepted names for messages.
std::string isa_list();

// What the CPU and the operating system offer.
struct CpuFeatures {
  bool avx2 = false;        // with FMA and F16C
  bool avx512 = false;      // F, BW, DQ and VL
  bool avx512bf16 = false;  // dot products of bf16 pairs
  bool avx512vnni = false;  // dot products of 8-bit integers
  bool neon = false;

  // The best set.
  Isa best() const noexcept;
  // Kernels for `isa` can run.
  bool has(Isa isa) const noexcept;
};

// Asks the CPU once. Thread-safe.
const CpuFeatures& cpu_features() noexcept;

// The set to use: the best one, or `cap` when it is given. Errors invalid_argument: an unknown
// name lists the accepted ones; a set that `features` lack names what the machine has.
Result<Isa> choose_isa(const CpuFeatures& features, std::optional<std::string_view> cap);

}  // namespace fovea
