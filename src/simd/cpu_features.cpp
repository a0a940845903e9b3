#include "src/simd/cpu_features.hpp"

#include <cctype>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea::simd {

std::string_view name(Isa isa) noexcept {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
    case Isa::amx:
      return "amx";
    case Isa::neon:
      return "neon";
  }
  return "generic";
}

std::optional<Isa> parse_isa(std::string_view text) noexcept {
  for (Isa isa : kIsas) {
    const std::string_view known = name(isa);
    if (text.size() != known.size()) continue;
    bool same = true;
    for (size_t i = 0; i < text.size(); ++i) {
      same &= std::tolower(static_cast<unsigned char>(text[i])) == known[i];
    }
    if (same) return isa;
  }
  return std::nullopt;
}

std::string_view amx_refusal() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0)
    return "the CPU has no amx_tile and amx_bf16";
  constexpr unsigned kTileConfig = 1u << 17, kTileData = 1u << 18;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0)
    return "the operating system saves no extended state";
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileConfig) == 0 || (low & kTileData) == 0)
    return "the operating system saves no tile registers";
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of newer headers
  constexpr long kTileDataFeature = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileDataFeature) != 0)
    return "Linux refused this process the use of tile registers";
  return "";
#else
  return "AMX needs Linux on x86-64";
#endif
}

Isa probe_isa([[maybe_unused]] bool tiles) noexcept {
#if defined(__x86_64__)
  // The builtin also asks the operating system. Clang 14 has no name for F16C.
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2") && f16c;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  if (avx512 && __builtin_cpu_supports("avx512bf16"))
    return tiles && amx_refusal().empty() ? Isa::amx : Isa::avx512bf16;
  if (avx512) return Isa::avx512;
  return avx2 ? Isa::avx2 : Isa::generic;
#elif defined(__aarch64__)
  return Isa::neon;
#else
  return Isa::generic;
#endif
}

bool includes(Isa available, Isa needed) noexcept {
  if (needed == Isa::generic || needed == available) return true;
  if (available == Isa::neon || needed == Isa::neon) return false;
  return needed < available;
}

Isa preferred_isa(Isa best, bool intel) noexcept {
  return best == Isa::avx512bf16 && intel ? Isa::avx512 : best;
}

Isa preferred_isa() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return preferred_isa(probe_isa(), __builtin_cpu_is("intel") != 0);
#else
  return probe_isa();
#endif
}

}  // namespace fovea::simd
