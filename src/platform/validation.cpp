#include "fovea/validation.hpp"

#include <algorithm>

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

// What a run calls the patterns of sparse problems.
struct PatternKind {
  std::string_view pattern;
  std::string_view kind;
};
constexpr PatternKind kPatterns[] = {{"radial", "radial"},
                                     {"local", "local window"},
                                     {"random", "block lists"},
                                     {"mask", "block lists"},
                                     {"topk", "top-k"}};

// Packages whose kernels fovea.torch.providers binds; the host program binds the others.
constexpr std::string_view kBoundInPython[] = {"torch",         "flash_attn", "flash_attn_3", "fa4",
                                               "sageattention", "aiter",      "mindiesd"};

constexpr std::string_view kPackage = "package ";
constexpr std::string_view kPlugin = "plugin ";

// Names that choose blocks from the data where a problem names no pattern.
constexpr std::string_view kChoosesBlocks[] = {"SPARGE_ATTN", "BLOCK_SPARSE_ATTN"};

bool listed(std::string_view list, std::string_view item) {
  const std::vector<std::string_view> items = text::split(list, ',');
  return std::any_of(items.begin(), items.end(),
                     [&](std::string_view each) { return text::trim(each) == item; });
}

// "package fa4 4.0.0" is provider "package fa4" with version "4.0.0".
struct Provider {
  std::string_view name;
  std::string_view version;
};
Provider split(std::string_view provider, const DeviceFacts& facts) {
  if (provider == "cudnn") return {provider, facts.get("cudnn").value_or("")};
  size_t start = 0;
  for (const std::string_view prefix : {kPackage, kPlugin})
    if (provider.starts_with(prefix)) start = prefix.size();
  if (start == 0) return {provider, {}};
  const size_t space = provider.find(' ', start);
  if (space == std::string_view::npos) return {provider, {}};
  return {provider.substr(0, space), provider.substr(space + 1)};
}

bool plain_release(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

// "9.14" is "9.14.0"; "4.0.0b18" is not "4.0.0".
bool same_version(std::string_view a, std::string_view b) {
  if (a == b) return true;
  return plain_release(a) && plain_release(b) && parse_version(a) == parse_version(b);
}

// The kinds that a problem needs under a name.
std::vector<std::string> kinds_of(std::string_view backend, const Problem& problem) {
  const bool chooses = std::find(std::begin(kChoosesBlocks), std::end(kChoosesBlocks), backend) !=
                       std::end(kChoosesBlocks);
  if (problem.sparse || !chooses) return validation_kinds(problem);
  Problem chosen = problem;
  chosen.sparse = SparsePattern{"topk", {}};
  return validation_kinds(chosen);
}

// The record of the path on such a device with whatever version.
const ValidationRecord* find_any_version(const ValidatedPath& path, const DeviceFacts& facts,
                                         std::span<const ValidationRecord> records) {
  const Provider provider = split(path.provider, facts);
  const std::string backend = name(path.backend);
  const std::string kind = device_class(facts);
  for (const ValidationRecord& record : records)
    if (record.backend == backend && record.path == path.path && record.provider == provider.name &&
        record.platform == name(facts.platform()) && record.device_class == kind)
      return &record;
  return nullptr;
}

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

std::vector<std::string> validation_kinds(const Problem& problem) {
  constexpr int64_t kLargestHead = 256, kLargestSparseHead = 128;
  const int64_t largest = problem.sparse ? kLargestSparseHead : kLargestHead;
  const MaskKind mask = problem.mask.kind;
  if (problem.dtype != kBF16 || problem.out_dtype != kBF16 || problem.head_dim > largest ||
      problem.dim_v > largest || problem.causal || problem.window != Window{} ||
      (mask != MaskKind::none && mask != MaskKind::keys) || !problem.pieces.empty())
    return {};
  if (problem.layout == Layout::packed && !problem.sparse) return {"packed"};
  const bool padded = problem.has_kv_lengths || mask == MaskKind::keys;
  const bool unequal = problem.seq_q != problem.seq_kv;
  if (!problem.sparse) {
    std::vector<std::string> kinds;
    if (padded) kinds.emplace_back("key padding");
    if (unequal) kinds.emplace_back("unequal lengths");
    if (kinds.empty()) kinds.emplace_back("dense");
    return kinds;
  }
  for (const PatternKind& each : kPatterns) {
    if (each.pattern != problem.sparse->name) continue;
    std::vector<std::string> kinds = {std::string(each.kind)};
    if (padded) kinds.push_back(text::concat(each.kind, " key padding"));
    if (unequal) kinds.push_back(text::concat(each.kind, " unequal lengths"));
    if (problem.layout == Layout::packed) kinds.push_back(text::concat(each.kind, " packed"));
    return kinds;
  }
  return {};
}

bool covers(const ValidationRecord& record, const Problem& problem) {
  const std::vector<std::string> kinds = kinds_of(record.backend, problem);
  return !kinds.empty() && std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    return listed(record.kinds, kind);
  });
}

bool covers_heads(const ValidationRecord& record, const Problem& problem) {
  return listed(record.heads, text::concat(problem.head_dim, '/', problem.dim_v));
}

const ValidationRecord* find_validation_record(const ValidatedPath& path, const DeviceFacts& facts,
                                               std::span<const ValidationRecord> records) {
  const std::string_view version = split(path.provider, facts).version;
  for (size_t i = 0; i < records.size();) {
    const ValidationRecord* found = find_any_version(path, facts, records.subspan(i));
    if (found == nullptr) return nullptr;
    if (same_version(found->library, version)) return found;
    i = static_cast<size_t>(found - records.data()) + 1;
  }
  return nullptr;
}

std::string missing_validation(const ValidatedPath& path, const Problem& problem,
                               const DeviceFacts& facts,
                               std::span<const ValidationRecord> records) {
  if (const ValidationRecord* found = find_validation_record(path, facts, records)) {
    const std::vector<std::string> kinds = kinds_of(found->backend, problem);
    if (kinds.empty()) return "no validation run holds such problems";
    std::string lacks;
    for (const std::string& kind : kinds)
      if (!listed(found->kinds, kind)) lacks += text::concat(lacks.empty() ? "" : ", ", kind);
    if (!lacks.empty()) return text::concat("its validation record does not cover ", lacks);
    return text::concat("its validation record does not cover head sizes ", problem.head_dim, '/',
                        problem.dim_v);
  }
  if (const ValidationRecord* other = find_any_version(path, facts, records))
    return text::concat("its validation record is of ", other->provider, ' ', other->library);
  return "without a validation record";
}

std::string validation_file_name(BackendName backend, std::string_view provider,
                                 const DeviceFacts& facts) {
  const Provider parts = split(provider, facts);
  std::string between = "-";
  for (const std::string_view prefix : {kPackage, kPlugin})
    if (parts.name.starts_with(prefix))
      between = text::concat('-', parts.name.substr(prefix.size()), '-');
  return text::concat(name(backend), between, device_class(facts), ".json");
}

std::string validation_command(BackendName backend, std::string_view provider,
                               const DeviceFacts& facts) {
  const Provider parts = split(provider, facts);
  const bool packaged = parts.name.starts_with(kPackage);
  std::string command = packaged ? "python3 -m fovea.check" : "fovea check";
  command +=
      text::concat(" --contract --backend ", name(backend), " --device ", name(facts.platform()));
  if (packaged) {
    const std::string_view package = parts.name.substr(kPackage.size());
    if (std::find(std::begin(kBoundInPython), std::end(kBoundInPython), package) ==
        std::end(kBoundInPython))
      command += text::concat(" --import MODULE_THAT_BINDS_", package);
  }
  return text::concat(command, " --record ", validation_file_name(backend, provider, facts));
}

}  // namespace fovea
