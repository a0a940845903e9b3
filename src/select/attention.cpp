#include "fovea/attention.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "fovea/registry.hpp"
#include "fovea/schedule.hpp"
#include "fovea/sparse.hpp"
#include "src/backends/skip_decision.hpp"
#include "src/config/rules.hpp"
#include "src/core/bound_packages.hpp"
#include "src/core/list_shape.hpp"
#include "src/core/text.hpp"
#include "src/core/workspace_pool.hpp"
#include "src/cuda_device/device.hpp"
#include "src/cuda_device/memory.hpp"
#include "src/select/assumed_state.hpp"
#include "src/select/plan_cache.hpp"

namespace fovea {
namespace {

Status check_layer(const LayerOptions& layer, const Problem& p) {
  const auto differs = [&](const char* field, int64_t declared, int64_t got) -> Status {
    if (declared == 0 || declared == got) return {};
    return Error{ErrorCode::invalid_tensor,
                 "layer '" + layer.role + "' was built with " + field + " " +
                     std::to_string(declared) + " but the call has " + field + " " +
                     std::to_string(got) +
                     "; build a layer for these tensors or pass 0 to accept any",
                 {}};
  };
  FOVEA_CHECK(differs("heads_q", layer.heads_q, p.heads_q));
  FOVEA_CHECK(differs("heads_kv", layer.heads_kv, p.heads_kv));
  FOVEA_CHECK(differs("head_dim", layer.head_dim, p.head_dim));
  FOVEA_CHECK(differs("dim_v", layer.dim_v, p.dim_v));
  if (layer.mask_free && p.mask.kind != MaskKind::none)
    return Error{
        ErrorCode::invalid_argument,
        "layer '" + layer.role +
            "' was declared mask_free but the call passes a mask; drop the mask or the declaration",
        {}};
  return {};
}

// A state of another layer's options would run something that this layer was not configured for.
Status check_state(const LayerOptions& layer, const AttentionSpec& spec,
                   const SparseAttentionState& state) {
  const AttentionSpec& made = state.spec();
  const bool same = made.backend == spec.backend &&
                    (!made.radial || *made.radial == spec.radial.value_or(RadialOptions{})) &&
                    (!made.local_sparse ||
                     *made.local_sparse == spec.local_sparse.value_or(LocalSparseOptions{})) &&
                    (!made.block_sparse ||
                     *made.block_sparse == spec.block_sparse.value_or(BlockSparseOptions{}));
  if (same) return {};
  return Error{
      ErrorCode::invalid_argument,
      text::concat("layer '", layer.role, "' is configured as ", to_json(spec),
                   ", but its sparse_state was made from ", to_json(made),
                   "; make the state from the layer's own configuration"),
      {{ReasonCode::sparse_state, "sparse_state", name(made.backend), name(spec.backend), {}}}};
}

Status check_timestep(std::optional<double> timestep) {
  if (!timestep || (*timestep >= 0 && *timestep <= 1)) return {};
  Reason reason{ReasonCode::option_value, "timestep", text::format_number(*timestep),
                "a number in [0, 1]: 1 is pure noise",
                "divide by the number of training timesteps, such as 1000"};
  return Error{ErrorCode::invalid_argument,
               text::concat("attention: ", sentence(reason)),
               {std::move(reason)}};
}

// A call with everything that a plan for it depends on.
struct PreparedCall {
  AttentionTensors tensors;
  Problem problem;
  bool sparse_state = false;
  std::optional<BackendName> scheduled_dense;
  std::shared_ptr<const BlockMask> block_mask;  // for the plan; else the tensors hold the lists
};

void drop_lists(AttentionTensors& tensors) {
  tensors.block_counts = tensors.block_indices = tensors.block_partial = {};
}

// The lists of a block mask as tensors; the mask outlives the call.
void set_lists(const BlockMask& mask, AttentionTensors& tensors) {
  const BlockMaskShape& s = mask.shape();
  const auto memory = [](std::span<const int32_t> values) {
    return const_cast<int32_t*>(values.data());  // inputs are never written
  };
  tensors.block_counts = make_view(memory(mask.counts()), kI32, {s.batch, s.heads, mask.rows()});
  tensors.block_indices =
      make_view(memory(mask.indices()), kI32, {s.batch, s.heads, mask.rows(), mask.max_count()});
  if (!mask.partial().empty()) {
    tensors.block_partial = make_view(const_cast<uint8_t*>(mask.partial().data()), kU8,
                                      {s.batch, s.heads, mask.rows(), mask.max_count()});
  }
}

// The lists of a mask that a plan holds, as the problem states them.
Result<SparsePattern> mask_pattern(const BlockMask& mask, const Problem& p) {
  const BlockMaskShape& s = mask.shape();
  const auto fits = [](int64_t size, int64_t full) { return size == 1 || size == full; };
  if (!fits(s.batch, p.batch) || !fits(s.heads, p.heads_q))
    return Error{ErrorCode::invalid_argument,
                 text::concat("block_mask is for ", s.batch, " batch items and ", s.heads,
                              " heads (accepted: 1 or ", p.batch, ", 1 or ", p.heads_q, ")"),
                 {}};
  return to_pattern(ListShape{s.block_q, s.block_kv, mask.max_count(), s.batch, s.heads,
                              !mask.partial().empty()});
}

// What a layer keeps for one device.
struct Site {
  Site(std::shared_ptr<const Platform> platform, const AttentionConfig& config,
       ExecutionContext where, uint64_t packages_then)
      : selector(std::move(platform), config), context(std::move(where)), packages(packages_then) {}

  const Selector selector;
  const ExecutionContext context;
  const uint64_t packages;   // bound_packages_epoch() of the facts
  WorkspacePool workspaces;  // of the CPU

  PlanCache plans;
};

Result<DeviceFacts> probe(Device device) {
  if (device.type == DeviceType::cuda) return probe_cuda(device.index);
  if (device.type == DeviceType::cpu) return probe_cpu();
  Reason reason{ReasonCode::platform, "device", to_string(device), "cpu, cuda",
                "create the layer with the platform and the facts of the device"};
  return Error{ErrorCode::unsupported,
               text::concat("attention: nothing is known of the device: ", sentence(reason)),
               {std::move(reason)}};
}

// Memory that only its owner can allocate.
Status need_own(const char* what, Device device) {
  if (device.type == DeviceType::cpu || device.type == DeviceType::cuda) return {};
  Reason reason{ReasonCode::platform, what, text::concat("allocated on ", to_string(device)),
                "cpu, cuda", "allocate it there: plan() and run its plan, with outputs in place"};
  return Error{
      ErrorCode::unsupported, text::concat("attention: ", sentence(reason)), {std::move(reason)}};
}

Result<OwnedTensor> allocate_output(const OutputSpec& spec, Device device, Stream stream) {
  FOVEA_CHECK(need_own("outputs", device));
  if (device.type != DeviceType::cuda) return OwnedTensor::allocate(spec.dtype, spec.shape);
  TensorView view = make_view(nullptr, spec.dtype, spec.shape, device);
  const auto bytes = static_cast<size_t>(view.numel()) * size_bytes(spec.dtype);
  FOVEA_TRY(cuda::Memory memory, cuda::Memory::allocate(bytes, device, stream));
  view.data = memory.data();
  return OwnedTensor::adopt(view, std::make_shared<cuda::Memory>(std::move(memory)));
}

// Boundaries that the caller has cut must be those of the lengths it states. Where a device holds
// them they are taken on trust.
Status check_padding(const AttentionMetadata& metadata, const AttentionTensors& t) {
  if (!metadata.packed_padding || !t.cu_seqlens_q.present() ||
      t.cu_seqlens_q.device.type != DeviceType::cpu)
    return {};
  const auto differs = [](const char* name, const TensorView& starts, int64_t length) -> Status {
    const int32_t got = static_cast<const int32_t*>(starts.data)[1];
    if (got == length) return {};
    return Error{ErrorCode::invalid_value,
                 "attention: " + std::string(name) + "[1] is " + std::to_string(got) +
                     " (accepted: " + std::to_string(length) + ", as packed_padding states)",
                 {}};
  };
  FOVEA_CHECK(differs("cu_seqlens_q", t.cu_seqlens_q, metadata.packed_padding->q_length));
  return differs("cu_seqlens_kv", t.cu_seqlens_kv, metadata.packed_padding->kv_length);
}

}  // namespace

struct Attention::State {
  State(LayerOptions l, AttentionConfig c)
      : layer(std::move(l)),
        config(std::move(c)),
        resolved(config.resolve(layer.role, layer.category)) {
    query.role = layer.role;
    query.category = layer.category;
    query.policy.mask_free = layer.mask_free;
  }

  const LayerOptions layer;
  const AttentionConfig config;
  const ResolvedSpec resolved;
  RoleQuery query;
  std::shared_ptr<Executor> owned_executor;
  Executor* executor = nullptr;
  std::optional<DeviceFacts> facts;  // given by the caller
  Site* home = nullptr;              // what resolve() answers for

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Site>> sites;

  Result<Site*> make_site(Device device) const {
    ExecutionContext context;
    const uint64_t packages = bound_packages_epoch();
    if (facts) {
      context.facts = *facts;
    } else {
      FOVEA_TRY(context.facts, probe(device));
    }
    context.executor = executor;
    context.device = device;
    auto platform = make_platform(context.facts);
    sites.push_back(
        std::make_unique<Site>(std::move(platform), config, std::move(context), packages));
    return sites.back().get();
  }

  Result<Site*> site(Device device) const {
    if (device == home->context.device) return home;
    std::lock_guard lock(mutex);
    // Facts that were probed are those of the packages bound then; earlier sites may be in use.
    for (auto known = sites.rbegin(); known != sites.rend(); ++known)
      if ((*known)->context.device == device &&
          (facts || device.type == DeviceType::cpu || (*known)->packages == bound_packages_epoch()))
        return known->get();
    return make_site(device);
  }

  RoleQuery query_for(const Problem& problem) const {
    RoleQuery q = query;
    q.policy.head_dim = problem.head_dim;
    return q;
  }

  // The configuration's own scale and causal flag apply unless the call gives them.
  CallOptions with_config(const CallOptions& options) const {
    CallOptions merged = options;
    if (resolved.spec == nullptr) return merged;
    if (!merged.scale) merged.scale = resolved.spec->scale;
    if (!merged.is_causal) merged.is_causal = resolved.spec->is_causal;
    return merged;
  }

  // Describes a call, with what its block mask and its sparse state make of it.
  Result<PreparedCall> prepare(const AttentionTensors& tensors, const CallOptions& options) const {
    FOVEA_CHECK(check_timestep(options.timestep));
    PreparedCall call{tensors, {}, false, {}, {}};
    FOVEA_TRY(call.problem, describe(call.tensors, options));
    if (options.block_mask != nullptr) {
      const BlockMaskShape& s = options.block_mask->shape();
      if (s.seq_q != call.problem.seq_q || s.seq_kv != call.problem.seq_kv)
        return Error{
            ErrorCode::invalid_argument,
            text::concat("block_mask is of ", s.seq_q, " x ", s.seq_kv, " tokens in ", s.rows(),
                         " x ", s.columns(), " blocks of ", s.block_q, " x ", s.block_kv,
                         ", the call has ", call.problem.seq_q, " x ", call.problem.seq_kv),
            {}};
      if (tensors.q.device.type == DeviceType::cpu) {
        CallOptions blocks = options;
        blocks.block_q = s.block_q;
        blocks.block_kv = s.block_kv;
        set_lists(*options.block_mask, call.tensors);
        FOVEA_TRY(call.problem, describe(call.tensors, blocks));
      } else {
        drop_lists(call.tensors);
        FOVEA_TRY(call.problem.sparse, mask_pattern(*options.block_mask, call.problem));
        call.block_mask = options.block_mask;
      }
    }
    const SparseAttentionState* state = options.sparse_state;
    if (state == nullptr || resolved.spec == nullptr || !config::is_sparse(resolved.spec->backend))
      return call;
    FOVEA_CHECK(check_state(layer, *resolved.spec, *state));
    call.sparse_state = true;
    if (state->should_use_dense()) {
      call.scheduled_dense = state->dense_backend();
      call.problem.sparse.reset();
      call.block_mask.reset();
      drop_lists(call.tensors);
    } else if (state->pattern()) {
      if (call.problem.sparse)
        return Error{ErrorCode::invalid_argument,
                     "the call has both a block mask and a sparse_state with a " +
                         state->pattern()->name + " pattern; give one",
                     {}};
      call.problem.sparse = state->pattern();
    }
    return call;
  }

  // The context of a call of this form.
  ExecutionContext context_for(const Site& site, const NormalForm& form,
                               const AttentionMetadata& metadata,
                               std::optional<double> timestep = {}) const {
    ExecutionContext c = site.context;
    describe_context(form, metadata, c);
    c.timestep = backends::gate_side(resolved.spec, timestep);
    if (layer.prepared != nullptr) c.prepared = layer.prepared->signature();
    return c;
  }

  Result<PlannedCall> planned(Site& site, const NormalForm& form, ExecutionContext call_context,
                              const SparseAttentionState* state = nullptr) const {
    const uint64_t epoch = registry_epoch();
    const Problem& problem = form.problem;
    PlanKey key = plan_key(form, call_context);
    if (auto known = site.plans.find(key, epoch)) return *std::move(known);
    if (state != nullptr && state->pattern() && !call_context.scheduled_dense) {
      // A geometry that does not fit is the backend's to refuse, with the reason.
      if (auto mask = state->mask(problem.seq_q)) call_context.block_mask = std::move(mask).value();
    }
    const RoleQuery q = query_for(problem);
    const std::shared_ptr<const Decision> decision = site.selector.decide(q, problem, call_context);
    if (decision->report.support == SupportStatus::unsupported)
      return refusal(*decision, q, problem);
    FOVEA_TRY(std::unique_ptr<Plan> plan,
              decision->implementation->plan(decision->backend, decision->problem, decision->spec,
                                             call_context));
    Receipt receipt = plan->receipt();
    receipt.fallback = decision->fallback;
    receipt.scheduled_dense = call_context.scheduled_dense.has_value();
    PlannedCall call{std::move(plan), std::make_shared<const Receipt>(std::move(receipt)), epoch,
                     problem.sparse.has_value() && !decision->problem.sparse, 0};
    site.plans.insert(std::move(key), call);
    return call;
  }

  Result<std::shared_ptr<const Receipt>> run(PreparedCall& request,
                                             const CallOptions& options) const {
    AttentionTensors& tensors = request.tensors;
    const AttentionMetadata nothing;
    const AttentionMetadata& metadata = options.metadata != nullptr ? *options.metadata : nothing;
    FOVEA_TRY(const NormalForm form, normalise(request.problem, metadata));
    FOVEA_CHECK(check_layer(layer, form.problem));
    FOVEA_CHECK(check_padding(metadata, tensors));
    const Device device = tensors.q.device;
    FOVEA_TRY(Site* const site, this->site(device));
    ExecutionContext call_context = context_for(*site, form, metadata, options.timestep);
    call_context.sparse_state = request.sparse_state;
    call_context.scheduled_dense = request.scheduled_dense;
    call_context.block_mask = request.block_mask;
    FOVEA_TRY(PlannedCall call, planned(*site, form, std::move(call_context),
                                        request.sparse_state ? options.sparse_state : nullptr));
    if (call.without_lists) drop_lists(tensors);
    AttentionTensors call_tensors = apply(form, tensors);
    call_tensors.prepared = layer.prepared.get();
    const size_t bytes = call.plan->workspace_bytes();
    if (device.type == DeviceType::cuda) {
      FOVEA_CHECK(cuda::check_pointers(tensors, device));
      FOVEA_TRY(const cuda::Memory workspace,
                cuda::Memory::allocate(bytes, device, options.stream));
      FOVEA_CHECK(call.plan->run(call_tensors, {workspace.data(), bytes}, options.stream));
      return call.receipt;
    }
    if (bytes > 0) FOVEA_CHECK(need_own("workspace", device));
    FOVEA_TRY(WorkspacePool::Lease lease, site->workspaces.borrow(bytes));
    FOVEA_CHECK(call.plan->run(call_tensors, {lease.data(), lease.bytes()}, options.stream));
    if (options.block_mask == nullptr || !tensors.block_counts.present()) return call.receipt;
    // A plan for given lists does not know how many blocks they hold.
    auto receipt = std::make_shared<Receipt>(*call.receipt);
    receipt->density = options.block_mask->density();
    return std::shared_ptr<const Receipt>(std::move(receipt));
  }
};

Attention::Attention(std::unique_ptr<State> state) : state_(std::move(state)) {}
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;
Attention::~Attention() = default;

Result<Attention> Attention::create(LayerOptions layer, AttentionConfig config, Executor* executor,
                                    std::optional<DeviceFacts> facts) {
  if (layer.role.empty())
    return Error{ErrorCode::invalid_argument, "a layer needs a role, for example \"self\"", {}};
  if (config.default_spec) FOVEA_CHECK(validate(*config.default_spec));
  for (const auto& [role, spec] : config.per_role) FOVEA_CHECK(validate(spec));
  if (layer.calibration != nullptr)
    config = calibrate(std::move(config), *layer.calibration, layer.name);
  auto state = std::make_unique<State>(std::move(layer), std::move(config));
  if (executor == nullptr) {
    state->owned_executor = make_openmp_executor();
    executor = state->owned_executor.get();
  }
  state->executor = executor;
  const bool cuda = facts && facts->platform() == PlatformId::cuda;
  state->facts = std::move(facts);
  FOVEA_TRY(state->home, state->make_site(cuda ? Device{DeviceType::cuda, 0} : kCpu));
  return Attention(std::move(state));
}

Result<AttentionResult> Attention::operator()(const AttentionTensors& inputs,
                                              const CallOptions& options) const {
  const CallOptions merged = state_->with_config(options);
  AttentionTensors tensors = inputs;
  tensors.out = {};
  tensors.lse = {};
  FOVEA_TRY(PreparedCall call, state_->prepare(tensors, merged));
  FOVEA_TRY(OutputSpecs specs, output_spec(call.problem));
  AttentionResult result;
  const Device device = tensors.q.device;
  FOVEA_TRY(result.out, allocate_output(specs.out, device, merged.stream));
  call.tensors.out = result.out.view();
  if (call.problem.lse) {
    FOVEA_TRY(result.lse, allocate_output(specs.lse, device, merged.stream));
    call.tensors.lse = result.lse.view();
  }
  FOVEA_TRY(result.receipt, state_->run(call, merged));
  return result;
}

Result<std::shared_ptr<const Receipt>> Attention::run(const AttentionTensors& tensors,
                                                      const CallOptions& options) const {
  const CallOptions merged = state_->with_config(options);
  FOVEA_TRY(PreparedCall call, state_->prepare(tensors, merged));
  return state_->run(call, merged);
}

std::shared_ptr<const Decision> Attention::resolve(const Problem& problem) const {
  const Site& home = *state_->home;
  return home.selector.decide(state_->query_for(problem), problem, home.context);
}

ExecutionPathResult Attention::resolve_execution_path(const Problem& problem,
                                                      const ExecutionContext& context,
                                                      const AttentionMetadata& metadata,
                                                      std::optional<Device> device) const {
  const Result<Site*> found = state_->site(device.value_or(state_->home->context.device));
  if (!found) {
    ExecutionPathResult refused;
    refused.platform = PlatformId::cuda;
    refused.parallel_strategy = context.parallel_strategy;
    refused.path = "device";
    refused.reasons = found.error().reasons;
    if (refused.reasons.empty())
      refused.reasons = {
          {ReasonCode::platform, "device", found.error().message, "a device of this machine", {}}};
    return refused;
  }
  const Site& site = **found;
  ExecutionContext declared = context;
  declared.facts = site.context.facts;
  declared.device = site.context.device;
  declared.executor = state_->executor;
  declared.kernel_variant.clear();
  declared.prepared = state_->layer.prepared == nullptr ? "" : state_->layer.prepared->signature();
  declared.timestep = backends::gate_side(state_->resolved.spec, context.timestep);
  Result<NormalForm> form = normalise(problem, metadata);
  if (const Status stated = check_timestep(context.timestep); !stated) form = stated.error();
  if (!form) {
    ExecutionPathResult refused;
    const Selection selection = site.selector.select(state_->query_for(problem));
    if (!selection.candidates.empty()) refused.backend = selection.candidates.front().backend;
    refused.platform = declared.facts.platform();
    refused.parallel_strategy = declared.parallel_strategy;
    refused.path = "contradiction";
    refused.reasons = form.error().reasons;
    return refused;
  }
  describe_context(*form, metadata, declared);
  Problem asked = form->problem;
  // The host says that a state will come with the call, not which.
  const bool unknown_video = context.sparse_state && !context.scheduled_dense &&
                             assume_sparse_state(state_->resolved.spec, 0, 0, asked, declared);
  ExecutionPathResult report =
      site.selector.decide(state_->query_for(problem), asked, declared)->report;
  if (unknown_video) report.density.reset();
  return report;
}

Result<ExecutionPathResult> Attention::resolve_execution_path(
    const AttentionTensors& tensors, const CallOptions& options,
    const ExecutionContext& context) const {
  const CallOptions merged = state_->with_config(options);
  FOVEA_TRY(const PreparedCall call, state_->prepare(tensors, merged));
  ExecutionContext declared = context;
  declared.sparse_state = call.sparse_state;
  declared.scheduled_dense = call.scheduled_dense;
  declared.block_mask = call.block_mask;
  declared.timestep = merged.timestep;
  const AttentionMetadata nothing;
  return resolve_execution_path(call.problem, declared,
                                merged.metadata != nullptr ? *merged.metadata : nothing,
                                tensors.q.device);
}

Result<std::shared_ptr<const Plan>> Attention::plan(const Problem& problem,
                                                    std::optional<Device> device,
                                                    const AttentionMetadata& metadata) const {
  FOVEA_TRY(const NormalForm form, normalise(problem, metadata));
  FOVEA_CHECK(check_layer(state_->layer, form.problem));
  FOVEA_TRY(Site* const site, state_->site(device.value_or(state_->home->context.device)));
  FOVEA_TRY(PlannedCall call,
            state_->planned(*site, form, state_->context_for(*site, form, metadata)));
  return call.plan;
}

Result<CallPlan> Attention::plan(const AttentionTensors& tensors,
                                 const CallOptions& options) const {
  if (options.block_mask != nullptr)
    return Error{ErrorCode::invalid_argument,
                 "a plan takes no block_mask; pass its lists as block_counts and block_indices",
                 {}};
  const CallOptions merged = state_->with_config(options);
  const AttentionMetadata nothing;
  const AttentionMetadata& metadata = merged.metadata != nullptr ? *merged.metadata : nothing;
  CallPlan result;
  FOVEA_TRY(PreparedCall call, state_->prepare(tensors, merged));
  FOVEA_TRY(const NormalForm form, normalise(call.problem, metadata));
  FOVEA_CHECK(check_layer(state_->layer, form.problem));
  FOVEA_TRY(Site* const site, state_->site(tensors.q.device));
  ExecutionContext context = state_->context_for(*site, form, metadata, merged.timestep);
  context.sparse_state = call.sparse_state;
  context.scheduled_dense = call.scheduled_dense;
  FOVEA_TRY(PlannedCall planned,
            state_->planned(*site, form, std::move(context),
                            call.sparse_state ? merged.sparse_state : nullptr));
  FOVEA_TRY(const Problem described, describe(tensors, merged));
  FOVEA_TRY(NormalForm own, normalise(described, metadata));
  result.plan = std::move(planned.plan);
  result.receipt = std::move(planned.receipt);
  result.problem = std::move(own.problem);
  result.without_lists = planned.without_lists || call.scheduled_dense.has_value();
  return result;
}

Result<RecordedCall> Attention::record(const Problem& problem,
                                       const AttentionMetadata& metadata) const {
  RecordedCall call;
  FOVEA_TRY(call.form_, normalise(problem, metadata));
  FOVEA_CHECK(check_layer(state_->layer, call.form_.problem));
  Site& site = *state_->home;
  FOVEA_TRY(PlannedCall planned,
            state_->planned(site, call.form_, state_->context_for(site, call.form_, metadata)));
  call.device_ = site.context.device;
  call.executor_ = state_->owned_executor;
  call.plan_ = std::move(planned.plan);
  call.receipt_ = std::move(planned.receipt);
  call.prepared_ = state_->layer.prepared;
  FOVEA_CHECK(call.take_workspace());
  return Result<RecordedCall>(std::move(call));
}

Result<AttentionResult> attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const AttentionConfig& config, const CallOptions& options,
                                  const TensorView& mask, const TensorView& kv_lengths) {
  FOVEA_TRY(Attention layer, Attention::create({}, config));
  AttentionTensors inputs;
  inputs.q = q;
  inputs.k = k;
  inputs.v = v;
  inputs.mask = mask;
  inputs.kv_lengths = kv_lengths;
  return layer(inputs, options);
}

}  // namespace fovea
