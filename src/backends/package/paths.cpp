#include "src/backends/package/paths.hpp"

#include <string>

#include "src/core/mask_mode.hpp"

namespace fovea::backends {
namespace {

constexpr Set<MaskMode> kSomeMask = {MaskMode::padding, MaskMode::arbitrary, MaskMode::unknown};
constexpr Set<PackingMode> kPacked = {PackingMode::packed_padding, PackingMode::multi_document};

constexpr PathRow kFa4[] = {
    {.path = "runtime_mask_dependent", .masks = {MaskMode::unknown}, .verifiable = false},
    {.path = "fa4_dense",
     .masks = {MaskMode::none},
     .packings = {PackingMode::none},
     .dtypes = {Element::bf16},
     .diagonal = Need::no,
     .plain = Need::yes,
     .needs_validator = true,
     .compilation_mode = CompilationMode::custom_op},
    {.path = "unverified", .verifiable = false}};

// AITER unpads by keys, so that a mask with rows of its own has no path.
constexpr PathRow kAiter[] = {
    {.path = "rocm_masked_varlen",
     .masks = {MaskMode::arbitrary},
     .accepted = "none, padding",
     .remedy = "pass key padding or choose TORCH_SDPA"},
    {.path = "rocm_unverified", .plain = Need::no, .verifiable = false},
    {.path = "rocm_packed_varlen", .packings = kPacked},
    {.path = "rocm_runtime_mask_dependent", .masks = {MaskMode::unknown}, .verifiable = false},
    {.path = "rocm_masked_varlen", .masks = {MaskMode::padding}, .mask_form = MaskForm::keys},
    {.path = "rocm_dense"}};

// A padding fallback isolates no documents, so packed calls without a packed path are refused.
constexpr PathRow kMindie[] = {
    {.path = "npu_unverified", .plain = Need::no, .verifiable = false, .mask_form = MaskForm::rows},
    {.path = "npu_packed_varlen",
     .packings = kPacked,
     .varlen = Need::no,
     .accepted = "npu_attn_varlen with it",
     .remedy = "declare npu_attn_varlen, or pass padded tensors with a mask"},
    {.path = "npu_prefix_kv_slice",
     .packings = {PackingMode::packed_padding},
     .laser = Need::yes,
     .host_lengths = Need::yes,
     .prefix_slice = true},
    {.path = "npu_prefix_kv_slice",
     .packings = kPacked,
     .laser = Need::yes,
     .accepted = "one document with packed_padding on padded tensors",
     .remedy = "pass padded tensors with packed_padding, or run without laser"},
    {.path = "npu_packed_varlen", .packings = kPacked},
    {.path = "npu_masked_fallback",
     .masks = {MaskMode::none},
     .varlen = Need::yes,
     .accepted = "a mask, or packed_padding",
     .remedy = "pass one of them, or leave npu_attn_varlen out"},
    {.path = "npu_masked_fallback",
     .varlen = Need::yes,
     .verifiable = false,
     .mask_form = MaskForm::rows},
    {.path = "npu_masked", .masks = kSomeMask, .mask_form = MaskForm::rows},
    {.path = "npu_dense"}};

constexpr PathRow kAny[] = {{.path = "package"}};

constexpr PackagePaths kTables[] = {{"fa4", PlatformId::cuda, kFa4},
                                    {"aiter", PlatformId::rocm, kAiter},
                                    {"mindiesd", PlatformId::npu, kMindie}};
constexpr PackagePaths kOther = {"", std::nullopt, kAny};

bool meets(Need need, bool value) noexcept {
  return need == Need::any || (need == Need::yes) == value;
}

}  // namespace

Surroundings surroundings(const Problem& p, const ExecutionContext& c) {
  Surroundings s;
  // A mask that is still there hides something; modes that contradict the problem are not used.
  s.mask = c.mask_mode;
  if (p.mask.kind != MaskKind::none) {
    const bool published = s.mask == MaskMode::padding || s.mask == MaskMode::arbitrary;
    if (!published) s.mask = unpublished_mask_mode(p);
  } else if (p.has_kv_lengths) {
    s.mask = MaskMode::padding;
  } else if (s.mask != MaskMode::unknown) {
    s.mask = MaskMode::none;
  }
  if (p.layout == Layout::packed)
    s.packing = c.packing_mode == PackingMode::packed_padding ? c.packing_mode
                                                              : PackingMode::multi_document;
  s.dtype = element(p.dtype).value_or(Element::f32);
  s.diagonal = p.causal || p.window != Window{};
  s.plain = p.pieces.empty() && !c.piecewise && !c.paged_kv && c.kv_cache_dtype.empty() &&
            c.parallel_strategy == ParallelStrategy::none && c.outer_boundaries.empty() &&
            !p.sparse;
  s.varlen = c.npu_attn_varlen;
  s.laser = c.facts.flag("laser");
  s.host_lengths = c.host_documents;
  return s;
}

bool PathRow::applies(const Surroundings& s) const noexcept {
  return masks.has(s.mask) && packings.has(s.packing) && dtypes.has(s.dtype) &&
         meets(diagonal, s.diagonal) && meets(plain, s.plain) && meets(varlen, s.varlen) &&
         meets(laser, s.laser) && meets(host_lengths, s.host_lengths);
}

const PackagePaths& paths_of(std::string_view package) noexcept {
  for (const PackagePaths& table : kTables)
    if (table.package == package) return table;
  return kOther;
}

const PackagePaths& paths_of(std::string_view package, BackendName backend) noexcept {
  const bool routed = backend == backend::FLASH_ATTN || backend == backend::FLASH_ATTN_4;
  return routed ? paths_of(package) : kOther;
}

const PathRow& find_path(const PackagePaths& paths, const Surroundings& s) noexcept {
  for (const PathRow& row : paths.rows)
    if (row.applies(s)) return row;
  return paths.rows.back();
}

Reason refusal(const PathRow& row, const Surroundings& s) {
  const bool by_packing = s.packing != PackingMode::none;
  Reason reason;
  reason.code = by_packing ? ReasonCode::packed : ReasonCode::mask;
  reason.field = by_packing ? "packing" : "mask";
  reason.got = std::string(by_packing ? name(s.packing) : name(s.mask));
  reason.accepted = row.accepted;
  reason.remedy = row.remedy;
  return reason;
}

}  // namespace fovea::backends
