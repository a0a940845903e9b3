#include "fovea/validation.hpp"

#include <algorithm>

#include "fovea/added_platform.hpp"
#include "fovea/version.hpp"
#include "src/core/text.hpp"
#include "src/platform/validation_heads.hpp"
#include "src/platform/validation_table.hpp"

namespace fovea {
namespace {

using validation::HeadSizes;

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

// What a run calls the patterns of sparse problems, and whether it holds them with unequal lengths.
// None are packed.
struct PatternKind {
  std::string_view pattern;
  std::string_view kind;
  bool unequal;
};
constexpr PatternKind kPatterns[] = {{"radial", "radial", false},
                                     {"local", "local window", false},
                                     {"random", "block lists", true},
                                     {"mask", "block lists", true},
                                     {"topk", "top-k", true}};

// Packages whose kernels fovea.torch.providers binds; the host program binds the others.
constexpr std::string_view kBoundInPython[] = {"torch",         "flash_attn", "flash_attn_3", "fa4",
                                               "sageattention", "aiter",      "mindiesd"};

constexpr std::string_view kPackage = "package ";
constexpr std::string_view kPlugin = "plugin ";

// Names that choose blocks from the data where a problem names no pattern.
constexpr std::string_view kChoosesBlocks[] = {"SPARGE_ATTN", "BLOCK_SPARSE_ATTN"};

// Paths of packages where nobody has inspected what runs.
constexpr std::string_view kUninspected[] = {"unverified",      "runtime_mask_dependent",
                                             "rocm_unverified", "rocm_runtime_mask_dependent",
                                             "npu_unverified",  "npu_masked_fallback"};

// "key padding 64/64 80/48".
struct PassedKind {
  std::string_view kind;
  std::string_view heads;  // "64/64 80/48"

  std::vector<HeadSizes> sizes() const {
    std::vector<HeadSizes> list;
    for (const std::string_view word : text::split(heads, ' ')) {
      const size_t slash = word.find('/');
      if (slash == std::string_view::npos) continue;
      list.push_back({text::parse_integer(word.substr(0, slash)).value_or(0),
                      text::parse_integer(word.substr(slash + 1)).value_or(0)});
    }
    return list;
  }
};

std::optional<PassedKind> find_kind(const ValidationRecord& record, std::string_view kind) {
  for (const std::string_view item : text::split(record.passed, ',')) {
    const std::string_view each = text::trim(item);
    const std::string_view words = each.substr(0, each.find('/'));
    const size_t end = words.rfind(' ');
    if (end == std::string_view::npos || words.substr(0, end) != kind) continue;
    return PassedKind{kind, each.substr(end + 1)};
  }
  return std::nullopt;
}

bool takes_heads(std::span<const HeadSizes> ran, const Problem& problem, HeadRule rule) {
  const auto any = [&](auto holds) { return std::any_of(ran.begin(), ran.end(), holds); };
  const HeadSizes asked{problem.head_dim, problem.dim_v};
  if (rule == HeadRule::none) return any([&](HeadSizes h) { return h == asked; });
  return any([&](HeadSizes h) { return h.query <= asked.query && h.value <= asked.value; }) &&
         any([&](HeadSizes h) { return h.query >= asked.query && h.value >= asked.value; });
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

// The problem under a name: with the pattern that it chooses where none is given.
Problem as_chosen(std::string_view backend, const Problem& problem) {
  const bool chooses = std::find(std::begin(kChoosesBlocks), std::end(kChoosesBlocks), backend) !=
                       std::end(kChoosesBlocks);
  Problem chosen = problem;
  if (!problem.sparse && chooses) chosen.sparse = SparsePattern{"topk", {}};
  return chosen;
}

std::vector<std::string> kinds_of(std::string_view backend, const Problem& problem) {
  return validation_kinds(as_chosen(backend, problem));
}

// Whether validation runs have such cases at all.
bool held_by_a_run(const Problem& problem, const std::vector<std::string>& kinds) {
  if (kinds.empty()) return false;
  if (!problem.sparse) return true;
  const bool unequal = problem.seq_q != problem.seq_kv;
  return problem.layout != Layout::packed &&
         std::any_of(std::begin(kPatterns), std::end(kPatterns), [&](const PatternKind& each) {
           return each.pattern == problem.sparse->name && (each.unequal || !unequal);
         });
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

// In which version a record differs from what would run.
std::string other_version(const ValidationRecord& record, std::string_view library) {
  if (same_version(record.library, library))
    return text::concat("fovea ", record.fovea, ", this is ", version());
  const bool stated = !library.empty() && library != "unknown";
  return text::concat(
      record.provider, ' ', record.library,
      stated ? text::concat(", not of ", library) : std::string(", and no version is stated here"));
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
  const MaskKind mask = problem.mask.kind;
  if (problem.dtype != kBF16 || problem.out_dtype != kBF16 || problem.causal ||
      problem.window != Window{} || (mask != MaskKind::none && mask != MaskKind::keys) ||
      !problem.pieces.empty())
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

bool covers(const ValidationRecord& record, const Problem& problem, HeadRule rule) {
  const std::vector<std::string> kinds = kinds_of(record.backend, problem);
  return !kinds.empty() && std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    const std::optional<PassedKind> passed = find_kind(record, kind);
    return passed && takes_heads(passed->sizes(), problem, rule);
  });
}

bool can_be_verified(std::string_view path) noexcept {
  return std::find(std::begin(kUninspected), std::end(kUninspected), path) ==
         std::end(kUninspected);
}

const ValidationRecord* find_validation_record(const ValidatedPath& path, const DeviceFacts& facts,
                                               std::span<const ValidationRecord> records) {
  const std::string_view library = split(path.provider, facts).version;
  for (size_t i = 0; i < records.size();) {
    const ValidationRecord* found = find_any_version(path, facts, records.subspan(i));
    if (found == nullptr) return nullptr;
    if (same_version(found->library, library) && same_version(found->fovea, version()))
      return found;
    i = static_cast<size_t>(found - records.data()) + 1;
  }
  return nullptr;
}

std::string missing_validation(const ValidatedPath& path, const Problem& problem,
                               const DeviceFacts& facts, std::span<const ValidationRecord> records,
                               HeadRule rule) {
  if (!validated_by_record(facts))
    return text::concat("which ", path.provider, " does not call verified");
  if (const ValidationRecord* found = find_validation_record(path, facts, records)) {
    const std::vector<std::string> kinds = kinds_of(found->backend, problem);
    if (!held_by_a_run(as_chosen(found->backend, problem), kinds))
      return "no validation run holds such problems";
    std::string lacks, heads;
    for (const std::string& kind : kinds) {
      const std::optional<PassedKind> passed = find_kind(*found, kind);
      if (!passed)
        lacks += text::concat(lacks.empty() ? "" : ", ", kind);
      else if (heads.empty() && !takes_heads(passed->sizes(), problem, rule))
        heads = passed->heads;
    }
    if (!lacks.empty()) return text::concat("its validation record does not cover ", lacks);
    return text::concat("its validation record does not cover head sizes ", problem.head_dim, '/',
                        problem.dim_v, " (it has ", heads, ")");
  }
  if (const ValidationRecord* other = find_any_version(path, facts, records))
    return text::concat("its validation record is of ",
                        other_version(*other, split(path.provider, facts).version));
  return "without a validation record";
}

std::string validation_remedy(const ValidatedPath& path, const Problem& problem,
                              const DeviceFacts& facts, std::span<const ValidationRecord> records,
                              HeadRule rule) {
  const std::string backend = name(path.backend);
  const Problem asked = as_chosen(backend, problem);
  const std::span<const HeadSizes> heads =
      asked.sparse ? std::span<const HeadSizes>(validation::kSparseHeads)
                   : std::span<const HeadSizes>(validation::kDenseHeads);
  const bool helps =
      held_by_a_run(asked, validation_kinds(asked)) && takes_heads(heads, asked, rule);
  // A first record is worth making whatever the problem.
  if (validated_by_record(facts) &&
      (helps || find_validation_record(path, facts, records) == nullptr))
    return "validate it with " + validation_command(path.backend, path.provider, facts);
  const PlatformId platform = facts.platform();
  const bool runs_it = platform == PlatformId::cuda || platform == PlatformId::cpu;
  if (!runs_it || path.provider.starts_with(kPackage)) return "compare it in the host program";
  return text::concat("compare it with fovea check --backend ", backend, " --device ",
                      name(platform), " --problem '", to_string(problem), "'");
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
