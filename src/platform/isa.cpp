#include "src/platform/isa.hpp"

#include <iterator>
#include <span>

#include "fovea/device_facts.hpp"
#include "src/core/env.hpp"
#include "src/core/text.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace fovea {
namespace {

// In the order of Isa.
constexpr std::string_view kNames[] = {"generic", "avx2", "avx512", "avx512bf16", "neon"};

CpuFeatures probe() noexcept {
  CpuFeatures features;
#if defined(__x86_64__) || defined(__i386__)
  // __builtin_cpu_supports also asks the operating system (xgetbv); F16C is not in the list of
  // every compiler.
  __builtin_cpu_init();
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  features.avx512bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.avx512vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
#elif defined(__aarch64__)
  features.neon = true;
#endif
  return features;
}

}  // namespace

std::string_view name(Isa isa) noexcept { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> parse_isa(std::string_view text) noexcept {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (text::equal_folded(text, kNames[i])) return static_cast<Isa>(i);
  return std::nullopt;
}

std::string isa_list() { return text::join(std::span(kNames)); }

Isa CpuFeatures::best() const noexcept {
  for (const Isa isa : {Isa::neon, Isa::avx512bf16, Isa::avx512, Isa::avx2})
    if (has(isa)) return isa;
  return Isa::generic;
}

bool CpuFeatures::has(Isa isa) const noexcept {
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return avx2;
    case Isa::avx512:
      return avx512;
    case Isa::avx512bf16:
      return avx512bf16;
    case Isa::neon:
      return neon;
  }
  return false;
}

const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures features = probe();
  return features;
}

Result<Isa> choose_isa(const CpuFeatures& features, std::optional<std::string_view> cap) {
  if (!cap) return features.best();
  const std::optional<Isa> asked = parse_isa(*cap);
  if (!asked)
    return Error{ErrorCode::invalid_argument,
                 text::concat("FOVEA_ISA is ", text::quote(*cap), "; accepted: ", isa_list(),
                              text::suggestion(*cap, std::span(kNames))),
                 {}};
  if (!features.has(*asked)) {
    std::vector<std::string_view> available;
    for (size_t i = 0; i < std::size(kNames); ++i)
      if (features.has(static_cast<Isa>(i))) available.push_back(kNames[i]);
    const std::string list = text::join(available);
    return Error{ErrorCode::invalid_argument,
                 text::concat("FOVEA_ISA is '", name(*asked), "', but this machine has ", list),
                 {{ReasonCode::isa, "FOVEA_ISA", std::string(name(*asked)), list,
                   "unset FOVEA_ISA, or choose one of these"}}};
  }
  return *asked;
}

Result<DeviceFacts> probe_cpu() {
  FOVEA_TRY(const Isa isa, choose_isa(cpu_features(), env::read(env::Variable::isa)));
  DeviceFacts facts(PlatformId::cpu);
  facts.set("isa", std::string(name(isa)));
  return facts;
}

}  // namespace fovea
