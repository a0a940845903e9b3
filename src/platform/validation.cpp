#include "fovea/validation.hpp"

#include "fovea/added_platform.hpp"
#include "src/core/text.hpp"
#include "src/platform/validation_table.hpp"

namespace fovea {
namespace {

// The fact that tells the devices of a platform apart, and what is printed before it.
struct Kind {
  PlatformId platform;
  std::string_view fact;
  std::string_view prefix;
};
constexpr Kind kKinds[] = {
    {PlatformId::cuda, "sm", "sm_"},
    {PlatformId::rocm, "gfx", ""},
    {PlatformId::xpu, "arch", "arch_"},
    {PlatformId::musa, "cc", "cc_"},
};

}  // namespace

std::span<const ValidationRecord> validation_records() noexcept { return validation::kRecords; }

bool validated_by_record(const DeviceFacts& facts) noexcept {
  return facts.platform() != PlatformId::cpu && is_built_in(facts.platform());
}

std::string device_class(const DeviceFacts& facts) {
  for (const Kind& kind : kKinds) {
    if (kind.platform != facts.platform()) continue;
    if (const auto value = facts.get(kind.fact)) return text::concat(kind.prefix, *value);
  }
  return std::string(name(facts.platform()));
}

bool covers(const ValidationRecord& record, const Problem& problem) noexcept {
  // What the run holds: bf16 in and out, heads up to 256, every key or a prefix or a key mask.
  constexpr int64_t kLargestHead = 256;
  const MaskKind mask = problem.mask.kind;
  if (problem.dtype != kBF16 || problem.out_dtype != kBF16 || problem.head_dim > kLargestHead ||
      problem.dim_v > kLargestHead || problem.causal || problem.window != Window{} ||
      (mask != MaskKind::none && mask != MaskKind::keys) || !problem.pieces.empty())
    return false;
  const bool padded = problem.has_kv_lengths || problem.mask.kind == MaskKind::keys;
  return (record.key_padding || !padded) &&
         (record.unequal_lengths || problem.seq_q == problem.seq_kv) &&
         (record.packed || problem.layout != Layout::packed);
}

const ValidationRecord* find_validation_record(std::string_view path, const DeviceFacts& facts) {
  const std::string kind = device_class(facts);
  for (const ValidationRecord& record : validation_records())
    if (record.path == path && record.platform == name(facts.platform()) &&
        record.device_class == kind)
      return &record;
  return nullptr;
}

std::string validation_command(BackendName backend, std::string_view path,
                               const DeviceFacts& facts) {
  return text::concat("fovea check --contract --backend ", name(backend), " --device ",
                      name(facts.platform()), " --record docs/validation/", path, "-",
                      device_class(facts), ".json");
}

}  // namespace fovea
