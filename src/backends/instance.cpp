#include "src/backends/instance.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "fovea/validation.hpp"
#include "src/core/text.hpp"

namespace fovea::backends {
namespace {

struct NamedElement {
  Element element;
  DType dtype;
};
constexpr NamedElement kElements[] = {
    {Element::f32, kF32}, {Element::f16, kF16}, {Element::bf16, kBF16}, {Element::boolean, kBool},
    {Element::u8, kU8},   {Element::i32, kI32}, {Element::i64, kI64}};

std::string_view mask_name(MaskKind kind) {
  switch (kind) {
    case MaskKind::none:
      return "none";
    case MaskKind::keys:
      return "keys";
    case MaskKind::boolean:
      return "bool";
    case MaskKind::bias:
      return "bias";
  }
  return "unknown";
}

std::string join(std::string list, std::string_view item) {
  if (!list.empty()) list += ", ";
  return list += item;
}

std::string list_of(const Set<Element>& set) {
  std::string list;
  for (const NamedElement& e : kElements)
    if (set.has(e.element)) list = join(std::move(list), fovea::name(e.dtype));
  return list;
}

std::string list_of(const Set<MaskKind>& set) {
  std::string list;
  for (MaskKind kind : {MaskKind::none, MaskKind::keys, MaskKind::boolean, MaskKind::bias})
    if (set.has(kind)) list = join(std::move(list), mask_name(kind));
  return list;
}

std::string describe(const SizeRange& range) {
  std::string text = std::to_string(range.min) + ".." + std::to_string(range.max);
  if (range.multiple > 1) text = "multiples of " + std::to_string(range.multiple) + " in " + text;
  return text;
}

bool has(const Set<Element>& set, DType dtype) {
  const std::optional<Element> e = element(dtype);
  return e.has_value() && set.has(*e);
}

void check_flag(std::vector<Reason>& out, bool asked, bool accepted, ReasonCode code,
                std::string_view field, std::string got) {
  if (asked && !accepted) out.push_back({code, std::string(field), std::move(got), "none", {}});
}

// The strides of q, k or v that matter: an axis of size 0 or 1 has none.
struct UsedStrides {
  std::array<int64_t, 3> stride{};
  size_t count = 0;

  UsedStrides(const Strides& s, int64_t batch, int64_t seq, int64_t heads) {
    const std::pair<int64_t, int64_t> axes[] = {{batch, s.batch}, {seq, s.seq}, {heads, s.head}};
    for (const auto& [size, value] : axes)
      if (size > 1) stride[count++] = value;
  }
  bool divisible(int64_t multiple) const {
    return std::all_of(stride.begin(), stride.begin() + static_cast<ptrdiff_t>(count),
                       [=](int64_t s) { return s % multiple == 0; });
  }
  // A stride of 0 repeats memory.
  bool expanded() const {
    return std::any_of(stride.begin(), stride.begin() + static_cast<ptrdiff_t>(count),
                       [](int64_t s) { return s == 0; });
  }
};

void check_strides(std::vector<Reason>& out, const Instance& in, const Problem& p) {
  struct Tensor {
    const char* name;
    const Strides* strides;
    int64_t seq, heads;
  };
  const Tensor tensors[] = {{"q", &p.q_strides, p.seq_q, p.heads_q},
                            {"k", &p.k_strides, p.seq_kv, p.heads_kv},
                            {"v", &p.v_strides, p.seq_kv, p.heads_kv}};
  const int64_t batch = p.layout == Layout::packed ? 1 : p.batch;
  for (const Tensor& t : tensors) {
    const Strides& s = *t.strides;
    const UsedStrides used(s, batch, t.seq, t.heads);
    const std::string field = std::string(t.name) + " strides";
    if (!used.divisible(in.stride_multiple))
      out.push_back(
          {ReasonCode::strides,
           field,
           std::to_string(s.batch) + "/" + std::to_string(s.seq) + "/" + std::to_string(s.head),
           "multiples of " + std::to_string(in.stride_multiple) + " elements",
           {}});
    if (!in.expanded_strides && used.expanded())
      out.push_back({ReasonCode::strides, field, "0", "nonzero strides", {}});
  }
}

// What the call's surroundings ask of a kernel.
void check_context(std::vector<Reason>& out, const Instance& in, const ExecutionContext& context) {
  if (context.paged_kv) out.push_back({ReasonCode::paged_kv, "paged_kv", "1", "0", {}});
  if (!context.kv_cache_dtype.empty())
    out.push_back({ReasonCode::dtype, "kv_cache_dtype", context.kv_cache_dtype, "none", {}});
  if (context.laser_input_scale)
    out.push_back({ReasonCode::metadata, "laser_input_scale",
                   text::format_number(*context.laser_input_scale), "none",
                   "only Ascend laser attention reads it; leave it out"});
  const bool rotates = context.parallel_strategy == ParallelStrategy::ring ||
                       context.parallel_strategy == ParallelStrategy::hybrid_ulysses_ring;
  if (rotates && !in.lse)
    out.push_back({ReasonCode::lse, "parallel strategy",
                   std::string(name(context.parallel_strategy)), "none, ulysses, allgather_kv",
                   "rings merge parts by their log-sum-exp, which this path does not return"});
  if (!context.prepared.empty() && !in.prepared)
    out.push_back({ReasonCode::prepared, "prepared tensors", context.prepared, "none",
                   "drop them or choose a backend that reads them"});
  refuse_host_numbers(out, context);
}

}  // namespace

std::optional<Element> element(DType dtype) noexcept {
  for (const NamedElement& e : kElements)
    if (e.dtype == dtype) return e.element;
  return std::nullopt;
}

void refuse_host_numbers(std::vector<Reason>& out, const ExecutionContext& context) {
  if (context.facts.platform() == PlatformId::cpu) return;
  if (context.host_documents)
    out.push_back({ReasonCode::packed, "packed_padding", "padded tensors",
                   "the packed layout with cu_seqlens on the device",
                   "pass the packed layout with cu_seqlens on the device"});
  if (context.host_lengths)
    out.push_back({ReasonCode::kv_lengths, "valid_kv_length", "beside a sparse pattern",
                   "kv_lengths on the device", "pass kv_lengths on the device"});
}

std::vector<Reason> refusals(const Instance& in, const Problem& p,
                             const ExecutionContext& context) {
  std::vector<Reason> out;
  if (in.device != nullptr)
    if (auto reason = in.device(context.facts)) out.push_back(std::move(*reason));
  if (!has(in.dtypes, p.dtype))
    out.push_back({ReasonCode::dtype, "dtype", std::string(name(p.dtype)), list_of(in.dtypes), {}});
  if (p.out_dtype != p.dtype)
    check_flag(out, true, in.f32_out && p.out_dtype == kF32, ReasonCode::output_dtype, "out_dtype",
               std::string(name(p.out_dtype)));
  if (!in.head_dim.has(p.head_dim))
    out.push_back(
        {ReasonCode::head_dim, "head_dim", std::to_string(p.head_dim), describe(in.head_dim), {}});
  if (!in.dim_v.has(p.dim_v))
    out.push_back({ReasonCode::dim_v, "dim_v", std::to_string(p.dim_v), describe(in.dim_v), {}});
  if (in.equal_dims && p.dim_v != p.head_dim)
    out.push_back({ReasonCode::dim_v,
                   "dim_v",
                   std::to_string(p.dim_v),
                   "head_dim (" + std::to_string(p.head_dim) + ")",
                   {}});
  check_flag(out, p.heads_q != p.heads_kv, in.gqa, ReasonCode::heads, "heads_kv",
             std::to_string(p.heads_kv));
  if (!in.masks.has(p.mask.kind))
    out.push_back(
        {ReasonCode::mask, "mask", std::string(mask_name(p.mask.kind)), list_of(in.masks), {}});
  else if (p.mask.kind != MaskKind::none && !has(in.mask_dtypes, p.mask.dtype))
    out.push_back({ReasonCode::mask_dtype, "mask dtype", std::string(name(p.mask.dtype)),
                   list_of(in.mask_dtypes), "convert the mask to bool"});
  check_flag(out, p.causal, in.causal, ReasonCode::causal, "causal", "1");
  check_flag(out, p.window != Window{}, in.window, ReasonCode::window, "window",
             std::to_string(p.window.left) + "," + std::to_string(p.window.right));
  check_flag(out, p.has_kv_lengths, in.kv_lengths, ReasonCode::kv_lengths, "kv_lengths", "1");
  check_flag(out, p.layout == Layout::packed, in.packed, ReasonCode::packed, "layout", "packed");
  if (!p.pieces.empty() && !in.piecewise)
    out.push_back({ReasonCode::piecewise, "pieces", std::to_string(p.pieces.size()), "none",
                   "choose FLASH_ATTN on the CPU, or pass a mask [1,1,Sq,Skv] instead"});
  check_flag(out, p.lse, in.lse, ReasonCode::lse, "lse", "1");
  check_flag(out, p.sparse.has_value(), in.sparse, ReasonCode::sparse, "sparse",
             p.sparse ? p.sparse->name : std::string());
  if (p.alignment % in.alignment != 0)
    out.push_back({ReasonCode::alignment,
                   "base address",
                   std::to_string(p.alignment) + " bytes",
                   "multiples of " + std::to_string(in.alignment) + " bytes",
                   {}});
  check_strides(out, in, p);
  check_context(out, in, context);
  return out;
}

Choice choose(std::span<const Instance> table, const Problem& problem,
              const ExecutionContext& context) {
  Choice best;
  bool any = false;
  const Instance* unbuilt = nullptr;
  for (const Instance& instance : table) {
    std::vector<Reason> reasons = refusals(instance, problem, context);
    if (reasons.empty()) {
      if (instance.built) return {&instance, {}};
      if (unbuilt == nullptr) unbuilt = &instance;
      continue;
    }
    if (!any || reasons.size() < best.reasons.size()) best.reasons = std::move(reasons);
    any = true;
  }
  if (unbuilt != nullptr) return {unbuilt, {}};
  return best;
}

ExecutionPathResult report(BackendName backend, std::string_view provider, const Choice& choice,
                           const Problem& problem, const ExecutionContext& context) {
  ExecutionPathResult r;
  r.backend = backend;
  r.provider = provider;
  if (choice.instance == nullptr) {
    r.reasons = choice.reasons;
    return r;
  }
  const Instance& in = *choice.instance;
  r.kernel_variant = provider;
  r.path = in.path;
  r.instance = in.name;
  r.built = in.built;
  r.lossy = in.lossy;
  // Verified is the kernel on its own: neither a parallel form of it nor a module around it that
  // shards or reschedules it. On an accelerator only a committed record verifies.
  const bool alone =
      context.parallel_strategy == ParallelStrategy::none && context.outer_boundaries.empty();
  const auto on_record = [&] {
    const ValidationRecord* record =
        find_validation_record({backend, provider, in.path}, context.facts);
    return record != nullptr && covers(*record, problem);
  };
  const bool verified = context.facts.platform() == PlatformId::cpu
                            ? in.verified == nullptr || in.verified(context.facts)
                            : on_record();
  r.support = alone && verified ? SupportStatus::supported : SupportStatus::unmigrated;
  r.compilation_mode = alone ? in.compilation_mode : CompilationMode::eager_only;
  if (!in.built && context.local) {
    r.support = SupportStatus::unsupported;
    r.reasons.push_back({ReasonCode::not_built, "path", std::string(in.path),
                         "a build that includes it", "rebuild with ./dev build --cuda auto"});
  }
  return r;
}

void apply_spec(ExecutionPathResult& report, const AttentionSpec* spec) {
  if (spec != nullptr && spec->skip_softmax) {
    report.support = SupportStatus::unsupported;
    report.reasons.push_back({ReasonCode::option_value, "skip_softmax", "given",
                              "none: this path has no variant that skips tiles", "remove it"});
  }
  apply_provider(report, spec);
}

void apply_provider(ExecutionPathResult& report, const AttentionSpec* spec) {
  if (spec == nullptr || spec->provider.empty()) return;
  // "package" stands for any "package NAME VERSION".
  const std::string_view provider =
      report.provider.starts_with("package") ? "package" : std::string_view(report.provider);
  if (spec->provider == provider) return;
  report.support = SupportStatus::unsupported;
  report.reasons.push_back({ReasonCode::provider, "provider", spec->provider, report.provider, {}});
}

Status admit(const ExecutionPathResult& report, const Problem& problem,
             const ExecutionContext& context) {
  const std::string who = name(report.backend) + " cannot run \"" + to_string(problem) + "\": ";
  if (report.support == SupportStatus::unsupported) {
    const bool unbuilt =
        std::all_of(report.reasons.begin(), report.reasons.end(),
                    [](const Reason& r) { return r.code == ReasonCode::not_built; });
    return Error{unbuilt ? ErrorCode::not_built : ErrorCode::unsupported,
                 who + sentence(report.reasons), report.reasons};
  }
  if (!context.local)
    return Error{ErrorCode::not_available,
                 who + "the facts describe another machine; plan on the machine itself",
                 {{ReasonCode::platform, "facts", context.facts.text(), "this machine", {}}}};
  return {};
}

Receipt make_receipt(const ExecutionPathResult& report, const Instance& instance) {
  Receipt r;
  r.backend = report.backend;
  r.provider = report.provider;
  r.path = report.path;
  r.instance = report.instance;
  r.compute_qk = instance.compute_qk;
  r.compute_pv = instance.compute_pv;
  r.deterministic = instance.deterministic;
  r.compilation_mode = report.compilation_mode;
  r.workspace_bytes = report.workspace_bytes;
  return r;
}

}  // namespace fovea::backends
