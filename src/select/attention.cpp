#include "fovea/attention.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fovea/registry.hpp"
#include "src/core/workspace_pool.hpp"
#include "src/cuda_device/device.hpp"
#include "src/cuda_device/memory.hpp"

namespace fovea {
namespace {

constexpr size_t kMaxPlans = 1024;

// What a plan depends on besides the layer's facts and configuration.
struct PlanKey {
  Problem problem;
  MaskMode mask_mode = MaskMode::none;
  PackingMode packing_mode = PackingMode::none;
  std::string kv_cache_dtype;
  bool host_documents = false;
  bool npu_attn_varlen = false;
  bool sparse_state = false;

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const noexcept { return hash_value(key.problem); }
};

PlanKey plan_key(const NormalForm& form, const ExecutionContext& context) {
  return {form.problem,           context.mask_mode,      context.packing_mode,
          context.kv_cache_dtype, context.host_documents, context.npu_attn_varlen,
          context.sparse_state};
}

// A plan with the receipt its runs hand out: the backend's own, plus what selection added.
struct PlannedCall {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Receipt> receipt;
  uint64_t epoch = 0;
};

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

// What a layer keeps for one device.
struct Site {
  Site(std::shared_ptr<const Platform> platform, const AttentionConfig& config,
       ExecutionContext where)
      : selector(std::move(platform), config), context(std::move(where)) {}

  const Selector selector;
  const ExecutionContext context;
  WorkspacePool workspaces;  // of the CPU

  std::mutex mutex;
  std::unordered_map<PlanKey, PlannedCall, PlanKeyHash> plans;
};

Result<DeviceFacts> probe(Device device) {
  return device.type == DeviceType::cuda ? probe_cuda(device.index) : probe_cpu();
}

Result<OwnedTensor> allocate_output(const OutputSpec& spec, Device device, Stream stream) {
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
  State(LayerOptions l, AttentionConfig c) : layer(std::move(l)), config(std::move(c)) {
    query.role = layer.role;
    query.category = layer.category;
    query.policy.mask_free = layer.mask_free;
  }

  const LayerOptions layer;
  const AttentionConfig config;
  RoleQuery query;
  std::unique_ptr<Executor> owned_executor;
  Executor* executor = nullptr;
  std::optional<DeviceFacts> facts;  // given by the caller
  Site* home = nullptr;              // what resolve() answers for

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Site>> sites;

  Result<Site*> make_site(Device device) const {
    ExecutionContext context;
    if (facts) {
      context.facts = *facts;
    } else {
      FOVEA_TRY(context.facts, probe(device));
    }
    context.executor = executor;
    context.device = device;
    auto platform = make_platform(context.facts);
    sites.push_back(std::make_unique<Site>(std::move(platform), config, std::move(context)));
    return sites.back().get();
  }

  Result<Site*> site(Device device) const {
    if (device == home->context.device) return home;
    std::lock_guard lock(mutex);
    for (const auto& known : sites)
      if (known->context.device == device) return known.get();
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
    const ResolvedSpec resolved = config.resolve(layer.role, layer.category);
    if (resolved.spec == nullptr) return merged;
    if (!merged.scale) merged.scale = resolved.spec->scale;
    if (!merged.is_causal) merged.is_causal = resolved.spec->is_causal;
    return merged;
  }

  // The context of a call of this form.
  ExecutionContext context_for(const Site& site, const NormalForm& form,
                               const AttentionMetadata& metadata) const {
    ExecutionContext c = site.context;
    describe_context(form, metadata, c);
    return c;
  }

  Result<PlannedCall> planned(Site& site, const NormalForm& form,
                              const ExecutionContext& call_context) const {
    const uint64_t epoch = registry_epoch();
    const Problem& problem = form.problem;
    PlanKey key = plan_key(form, call_context);
    {
      std::lock_guard lock(site.mutex);
      if (auto found = site.plans.find(key);
          found != site.plans.end() && found->second.epoch == epoch)
        return found->second;
    }
    const RoleQuery q = query_for(problem);
    const std::shared_ptr<const Decision> decision = site.selector.decide(q, problem, call_context);
    if (decision->report.support == SupportStatus::unsupported)
      return refusal(*decision, q, problem);
    FOVEA_TRY(
        std::unique_ptr<Plan> plan,
        decision->implementation->plan(decision->backend, problem, decision->spec, call_context));
    Receipt receipt = plan->receipt();
    receipt.fallback = decision->fallback;
    PlannedCall call{std::move(plan), std::make_shared<const Receipt>(std::move(receipt)), epoch};
    std::lock_guard lock(site.mutex);
    if (site.plans.size() >= kMaxPlans) site.plans.clear();
    site.plans[std::move(key)] = call;
    return call;
  }

  Result<std::shared_ptr<const Receipt>> run(const AttentionTensors& tensors,
                                             const Problem& problem,
                                             const CallOptions& options) const {
    const AttentionMetadata nothing;
    const AttentionMetadata& metadata = options.metadata != nullptr ? *options.metadata : nothing;
    FOVEA_TRY(const NormalForm form, normalise(problem, metadata));
    FOVEA_CHECK(check_layer(layer, form.problem));
    FOVEA_CHECK(check_padding(metadata, tensors));
    const Device device = tensors.q.device;
    FOVEA_TRY(Site* const site, this->site(device));
    ExecutionContext call_context = context_for(*site, form, metadata);
    call_context.sparse_state = options.sparse_state != nullptr;
    FOVEA_TRY(PlannedCall call, planned(*site, form, call_context));
    const AttentionTensors call_tensors = apply(form, tensors);
    const size_t bytes = call.plan->workspace_bytes();
    if (device.type == DeviceType::cuda) {
      FOVEA_CHECK(cuda::check_pointers(tensors, device));
      FOVEA_TRY(const cuda::Memory workspace,
                cuda::Memory::allocate(bytes, device, options.stream));
      FOVEA_CHECK(call.plan->run(call_tensors, {workspace.data(), bytes}, options.stream));
      return call.receipt;
    }
    FOVEA_TRY(WorkspacePool::Lease lease, site->workspaces.borrow(bytes));
    FOVEA_CHECK(call.plan->run(call_tensors, {lease.data(), lease.bytes()}, options.stream));
    return call.receipt;
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
  FOVEA_TRY(Problem problem, describe(tensors, merged));
  FOVEA_TRY(OutputSpecs specs, output_spec(problem));
  AttentionResult result;
  const Device device = tensors.q.device;
  FOVEA_TRY(result.out, allocate_output(specs.out, device, merged.stream));
  tensors.out = result.out.view();
  if (problem.lse) {
    FOVEA_TRY(result.lse, allocate_output(specs.lse, device, merged.stream));
    tensors.lse = result.lse.view();
  }
  FOVEA_TRY(result.receipt, state_->run(tensors, problem, merged));
  return result;
}

Result<std::shared_ptr<const Receipt>> Attention::run(const AttentionTensors& tensors,
                                                      const CallOptions& options) const {
  const CallOptions merged = state_->with_config(options);
  FOVEA_TRY(Problem problem, describe(tensors, merged));
  return state_->run(tensors, problem, merged);
}

std::shared_ptr<const Decision> Attention::resolve(const Problem& problem) const {
  const Site& home = *state_->home;
  return home.selector.decide(state_->query_for(problem), problem, home.context);
}

ExecutionPathResult Attention::resolve_execution_path(const Problem& problem,
                                                      const ExecutionContext& context) const {
  ExecutionContext declared = context;
  declared.executor = state_->executor;
  return state_->home->selector.decide(state_->query_for(problem), problem, declared)->report;
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
