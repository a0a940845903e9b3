#include "src/backends/package/backend.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fovea/package_kernel.hpp"
#include "fovea/reason.hpp"
#include "fovea/validation.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/package/kernels.hpp"
#include "src/backends/package/paths.hpp"
#include "src/backends/run_tensors.hpp"
#include "src/backends/skip_decision.hpp"
#include "src/config/rules.hpp"
#include "src/core/log.hpp"
#include "src/core/text.hpp"

namespace fovea::backends {
namespace {

// [B,Skv] of a mask without head and query axis.
TensorView keys_view(TensorView mask) noexcept {
  const auto last = static_cast<size_t>(mask.rank - 1);
  mask.shape[1] = mask.shape[last];
  mask.stride[1] = mask.stride[last];
  mask.rank = 2;
  return mask;
}

// [1|B,1|H,Sq,Skv] of a mask of two, three or four axes, of which the first is the batch and the
// last the keys. A row that all queries share is repeated in place.
TensorView rows_view(const TensorView& mask, int64_t rows) noexcept {
  const auto rank = static_cast<size_t>(mask.rank);
  TensorView out = mask;
  out.rank = 4;
  const auto set = [&](size_t axis, int64_t size, int64_t stride) {
    out.shape[axis] = size;
    out.stride[axis] = stride;
  };
  set(1, 1, 0);
  set(2, 1, 0);
  set(3, mask.shape[rank - 1], mask.stride[rank - 1]);
  if (rank == 4) set(1, mask.shape[1], mask.stride[1]);
  if (rank >= 3) set(2, mask.shape[rank - 2], mask.stride[rank - 2]);
  if (out.shape[2] == 1) set(2, rows, 0);
  return out;
}

class PackagePlan final : public Plan {
 public:
  PackagePlan(std::shared_ptr<const PackageKernel> kernel, const PathRow& row, Problem problem,
              const AttentionSpec* spec, const ExecutionContext& context, Receipt receipt)
      : kernel_(std::move(kernel)),
        row_(row),
        problem_(std::move(problem)),
        spec_(spec == nullptr ? std::nullopt : std::optional(*spec)),
        host_documents_(context.host_documents),
        protected_kv_prefix_(context.protected_kv_prefix),
        laser_input_scale_(context.laser_input_scale),
        video_layout_(context.video_layout),
        receipt_(std::move(receipt)) {
    if (receipt_.skip && receipt_.skip->state == SkipState::unknown_timestep)
      log_once(LogLevel::warning,
               text::concat(name(receipt_.backend), ": skip_softmax.disabled_until_timestep is ",
                            text::format_number(spec_->skip_softmax->disabled_until_timestep),
                            ", but calls state no timestep: no tile is skipped"));
  }

  size_t workspace_bytes() const noexcept override { return 0; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& tensors, Workspace, Stream stream) const noexcept override {
    AttentionTensors checked = tensors;
    if (host_documents_)
      checked.cu_seqlens_q.device = checked.cu_seqlens_kv.device = tensors.q.device;
    FOVEA_CHECK(check_tensors(problem_, checked, tensors.q.device));
    AttentionTensors t = tensors;
    int64_t valid_queries = problem_.seq_q;
    if (t.mask.present() && row_.mask_form == MaskForm::keys) t.mask = keys_view(t.mask);
    if (t.mask.present() && row_.mask_form == MaskForm::rows)
      t.mask = rows_view(t.mask, problem_.seq_q);
    if (row_.prefix_slice) {
      valid_queries = static_cast<const int32_t*>(t.cu_seqlens_q.data)[1];
      t.k.shape[0] = t.v.shape[0] = static_cast<const int32_t*>(t.cu_seqlens_kv.data)[1];
    }
    try {
      return kernel_->run({row_.path, problem_, t, spec_ ? &*spec_ : nullptr, valid_queries,
                           protected_kv_prefix_, laser_input_scale_, stream, receipt_.backend,
                           receipt_.skip ? &*receipt_.skip : nullptr,
                           video_layout_ ? &*video_layout_ : nullptr});
    } catch (...) {
      return Error{ErrorCode::device_error,
                   "the kernel of package " + kernel_->package + " threw an exception",
                   {}};
    }
  }

 private:
  std::shared_ptr<const PackageKernel> kernel_;
  const PathRow& row_;
  Problem problem_;
  std::optional<AttentionSpec> spec_;
  bool host_documents_;
  int64_t protected_kv_prefix_;
  std::optional<double> laser_input_scale_;
  std::optional<VideoLayout> video_layout_;
  Receipt receipt_;
};

class PackageBackend final : public Backend {
 public:
  explicit PackageBackend(PackageKernel kernel)
      : kernel_(std::make_shared<const PackageKernel>(std::move(kernel))),
        path_("package:" + kernel_->package) {}

  std::string_view path() const noexcept override { return path_; }

  ExecutionPathResult resolve(BackendName backend, const Problem& problem,
                              const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    const Surroundings s = surroundings(problem, context);
    const PathRow& row = find_path(paths_of(kernel_->package, backend), s);
    ExecutionPathResult r;
    r.backend = backend;
    r.provider = provider(context.facts);
    r.kernel_variant = kernel_->package;
    r.path = row.path == "package" ? "package." + kernel_->package : std::string(row.path);
    r.instance = "default";
    r.built = bound();
    r.lossy =
        package_kernel(backend, context.facts.platform()).lossy || quantises(spec, problem.dtype);
    refuse(r, row, s, problem, spec, context);
    if (skips_tiles(backend))
      apply_provider(r, spec);
    else
      apply_spec(r, spec);
    const auto skip = skip_decision(spec, problem, context);
    r.lossy = r.lossy || (skips_tiles(backend) && skip && skip->state == SkipState::skips);
    if (r.reasons.empty()) judge(r, row, problem, context);
    return r;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName backend, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const ExecutionPathResult r = resolve(backend, problem, spec, context);
    FOVEA_CHECK(admit(r, problem, context));
    Receipt receipt;
    receipt.backend = backend;
    receipt.provider = r.provider;
    receipt.path = r.path;
    receipt.instance = r.instance;
    receipt.device = name(context.facts.platform());
    receipt.compute_qk = receipt.compute_pv = receipt.accumulate = "unstated";
    receipt.compilation_mode = r.compilation_mode;
    receipt.skip = skip_decision(spec, problem, context);
    const PathRow& row =
        find_path(paths_of(kernel_->package, backend), surroundings(problem, context));
    return std::unique_ptr<Plan>(
        std::make_unique<PackagePlan>(kernel_, row, problem, spec, context, std::move(receipt)));
  }

 private:
  bool bound() const noexcept { return kernel_->run != nullptr; }

  std::string provider(const DeviceFacts& facts) const {
    std::string text = "package " + kernel_->package;
    const auto fact = facts.get(kernel_->package);
    if (!kernel_->version.empty())
      text += " " + kernel_->version;
    else if (facts.flag(kernel_->package) && *fact != "1" && *fact != "unknown")
      text += " " + std::string(*fact);
    return text;
  }

  // Everything that keeps the package from running the call.
  void refuse(ExecutionPathResult& r, const PathRow& row, const Surroundings& s,
              const Problem& problem, const AttentionSpec* spec,
              const ExecutionContext& context) const {
    const PlatformId platform = context.facts.platform();
    const std::optional<PlatformId> own = paths_of(kernel_->package).platform;
    if (own && *own != platform)
      r.reasons.push_back({ReasonCode::platform, "platform", std::string(name(platform)),
                           std::string(name(*own)), "choose a backend of this device"});
    if (row.refuses()) r.reasons.push_back(refusal(row, s));
    // A package without a path table has one row of limits instead.
    if (row.path == "package")
      for (Reason& reason : refusals(package_kernel(r.backend, platform), problem, context))
        r.reasons.push_back(std::move(reason));
    else if (problem.sparse)
      r.reasons.push_back({ReasonCode::sparse, "sparse", problem.sparse->name, "none",
                           "choose a sparse backend, or leave the pattern out"});
    if (spec != nullptr)
      for (Reason& reason : option_refusals(*spec, problem, context.facts))
        r.reasons.push_back(std::move(reason));
    if (context.laser_input_scale && row.path != "package" && !s.laser)
      r.reasons.push_back({ReasonCode::metadata, "laser_input_scale",
                           text::format_number(*context.laser_input_scale), "none",
                           "only Ascend laser attention reads it; leave it out"});
    refuse_parallel(r, problem, context);
    if (!context.prepared.empty() && row.path != "package")
      r.reasons.push_back({ReasonCode::prepared, "prepared tensors", context.prepared, "none",
                           "drop them or choose a backend that reads them"});
    if (!kernel_->reads_options) refuse_options(r, spec, context);
    if (kernel_->refusals)
      for (Reason& reason : kernel_->refusals(r.backend, problem))
        r.reasons.push_back(std::move(reason));
    if (kernel_->validate_dims) {
      const auto alignment = static_cast<int64_t>(16 / size_bytes(problem.dtype));
      if (auto why = kernel_->validate_dims(problem.head_dim, problem.dim_v, alignment))
        r.reasons.push_back({ReasonCode::head_dim, kernel_->package + " head sizes",
                             std::to_string(problem.head_dim) + "/" + std::to_string(problem.dim_v),
                             *std::move(why), "select compatible inputs or another backend"});
    }
    if (context.local && !bound())
      r.reasons.push_back({ReasonCode::not_registered, "provider", r.provider, "a bound kernel",
                           "bind the package's kernel with bind_package"});
  }

  // What a kernel that reads tensors only would ignore.
  void refuse_options(ExecutionPathResult& r, const AttentionSpec* spec,
                      const ExecutionContext& context) const {
    const std::string accepted = "none: the kernel of " + kernel_->package + " reads no options";
    const std::string blocks = spec == nullptr ? std::string() : config::option_blocks(*spec);
    if (!blocks.empty())
      r.reasons.push_back({ReasonCode::option_owner, "options of " + name(r.backend), blocks,
                           accepted, "remove them"});
    if (context.protected_kv_prefix > 0)
      r.reasons.push_back({ReasonCode::metadata, "protected_kv_prefix",
                           std::to_string(context.protected_kv_prefix), accepted, "leave it out"});
    if (context.laser_input_scale)
      r.reasons.push_back({ReasonCode::metadata, "laser_input_scale",
                           text::format_number(*context.laser_input_scale), accepted,
                           "leave it out"});
  }

  // Forms of parallel attention that a package's kernel would get wrong in silence.
  static void refuse_parallel(ExecutionPathResult& r, const Problem& problem,
                              const ExecutionContext& context) {
    const ParallelStrategy strategy = context.parallel_strategy;
    const bool rotates =
        strategy == ParallelStrategy::ring || strategy == ParallelStrategy::hybrid_ulysses_ring;
    const bool gathers = strategy == ParallelStrategy::allgather_kv;
    const bool sparse = package_kernel(r.backend, context.facts.platform()).sparse;
    if ((r.backend == backend::TRTLLM_ATTN || sparse) && (rotates || gathers))
      r.reasons.push_back({ReasonCode::parallel, "parallel strategy", std::string(name(strategy)),
                           "none, ulysses", "use ulysses or choose FLASH_ATTN"});
    if (rotates && problem.mask.kind != MaskKind::none)
      r.reasons.push_back({ReasonCode::parallel, "mask", "given under a ring", "none",
                           "use ulysses, or state the padding as lengths"});
    if (rotates && !context.kv_cache_dtype.empty())
      r.reasons.push_back({ReasonCode::parallel, "kv_cache_dtype", context.kv_cache_dtype,
                           "none under a ring", "keep keys and values in their own type"});
  }

  // Supported is a matter of record: a committed one, or one that was given with the kernel.
  void judge(ExecutionPathResult& r, const PathRow& row, const Problem& problem,
             const ExecutionContext& context) const {
    r.support = SupportStatus::unmigrated;
    const ValidatedPath path{r.backend, r.provider, r.path};
    std::string lacks;
    std::string remedy =
        validation_remedy(path, problem, context.facts, known_records(), head_rule());
    const bool alone = context.parallel_strategy == ParallelStrategy::none &&
                       context.outer_boundaries.empty() && !context.paged_kv &&
                       context.kv_cache_dtype.empty() && !context.piecewise;
    if (!alone) {
      lacks = "inspected only";
      remedy = "validate the combination in the host engine";
    } else if (!row.verifiable) {
      lacks = "where no record counts";
      remedy = "compare it in the host program";
    } else if (row.needs_validator && !kernel_->validate_dims) {
      lacks = "without a rule of the package for head sizes";
      if (on_record(path, problem, context.facts))
        remedy = "bind the package's kernel, which brings the rule (docs/python.md)";
    } else if (on_record(path, problem, context.facts)) {
      r.support = SupportStatus::supported;
    } else {
      lacks = missing_validation(path, problem, context.facts, known_records(), head_rule());
    }
    if (r.support == SupportStatus::supported) {
      r.compilation_mode = row.compilation_mode;
      return;
    }
    r.reasons.push_back(
        {ReasonCode::unvalidated, "path", r.path + ", " + lacks, {}, std::move(remedy)});
  }

  HeadRule head_rule() const noexcept {
    return kernel_->validate_dims ? HeadRule::published : HeadRule::none;
  }

  // The record that was given with the kernel, then the committed ones.
  std::vector<ValidationRecord> known_records() const {
    const auto committed = validation_records();
    std::vector<ValidationRecord> known;
    if (kernel_->validation != nullptr) {
      const auto given = kernel_->validation->records();
      known.assign(given.begin(), given.end());
    }
    known.insert(known.end(), committed.begin(), committed.end());
    return known;
  }

  bool on_record(const ValidatedPath& path, const Problem& problem,
                 const DeviceFacts& facts) const {
    const auto holds = [&](std::span<const ValidationRecord> records) {
      const ValidationRecord* record = find_validation_record(path, facts, records);
      return record != nullptr && covers(*record, problem, head_rule());
    };
    return holds(validation_records()) ||
           (kernel_->validation != nullptr && holds(kernel_->validation->records()));
  }

  std::shared_ptr<const PackageKernel> kernel_;
  std::string path_;
};

}  // namespace

std::shared_ptr<const Backend> make_package_backend(std::string_view package) {
  PackageKernel kernel;
  kernel.package = package;
  return std::make_shared<PackageBackend>(std::move(kernel));
}

}  // namespace fovea::backends

namespace fovea {

Result<std::shared_ptr<const Backend>> make_package_backend(PackageKernel kernel) {
  if (kernel.package.empty() || kernel.run == nullptr)
    return Error{ErrorCode::invalid_argument,
                 "make_package_backend: a kernel needs the name of its package and a run function",
                 {}};
  return std::shared_ptr<const Backend>(
      std::make_shared<backends::PackageBackend>(std::move(kernel)));
}

}  // namespace fovea
