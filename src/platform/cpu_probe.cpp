#include "src/platform/cpu_probe.hpp"

#include <vector>

#include "fovea/device_facts.hpp"
#include "src/core/env.hpp"
#include "src/core/text.hpp"

namespace fovea::platform {
namespace {

std::vector<std::string_view> names(simd::Isa available) {
  std::vector<std::string_view> list;
  for (const simd::Isa isa : simd::kIsas)
    if (simd::includes(available, isa)) list.push_back(simd::name(isa));
  return list;
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> list;
  for (const simd::Isa isa : simd::kIsas) list.push_back(simd::name(isa));
  return list;
}

}  // namespace

std::string isa_list() { return text::join(all_names()); }

Result<simd::Isa> choose_isa(simd::Isa available, std::optional<std::string_view> wanted) {
  if (!wanted) return available;
  const std::optional<simd::Isa> isa = simd::parse_isa(*wanted);
  if (!isa)
    return Error{ErrorCode::invalid_argument,
                 text::concat("FOVEA_ISA is ", text::quote(*wanted), "; accepted: ", isa_list(),
                              text::suggestion(*wanted, all_names())),
                 {}};
  if (!simd::includes(available, *isa)) {
    const std::string list = text::join(names(available));
    const std::string_view why = *isa == simd::Isa::amx ? simd::amx_refusal() : "";
    return Error{ErrorCode::invalid_argument,
                 text::concat("FOVEA_ISA is '", simd::name(*isa), "', but this machine has ", list,
                              why.empty() ? "" : ": ", why),
                 {{ReasonCode::isa, "FOVEA_ISA", std::string(simd::name(*isa)), list,
                   "unset FOVEA_ISA, or set it to one of these"}}};
  }
  return *isa;
}

}  // namespace fovea::platform

namespace fovea {

Result<DeviceFacts> probe_cpu() {
  const auto wanted = env::read(env::Variable::isa);
  // A cap below AMX also keeps the process from asking for tile registers.
  const bool tiles = wanted && simd::parse_isa(*wanted) == simd::Isa::amx;
  FOVEA_TRY(const simd::Isa isa,
            platform::choose_isa(wanted ? simd::probe_isa(tiles) : simd::preferred_isa(), wanted));
  DeviceFacts facts(PlatformId::cpu);
  facts.set("isa", std::string(simd::name(isa)));
  return facts;
}

}  // namespace fovea
