#include "fovea/attention.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "fovea/registry.hpp"
#include "src/core/workspace_pool.hpp"

namespace fovea {
namespace {

constexpr size_t kMaxPlans = 1024;

struct ProblemHash {
  size_t operator()(const Problem& problem) const noexcept { return hash_value(problem); }
};

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

}  // namespace

struct Attention::State {
  State(LayerOptions l, AttentionConfig c, std::shared_ptr<const Platform> p)
      : layer(std::move(l)), config(std::move(c)), selector(std::move(p), config) {
    query.role = layer.role;
    query.category = layer.category;
    query.policy.mask_free = layer.mask_free;
  }

  const LayerOptions layer;
  const AttentionConfig config;
  const Selector selector;
  RoleQuery query;
  std::unique_ptr<Executor> owned_executor;
  ExecutionContext context;
  mutable WorkspacePool workspaces;

  mutable std::mutex mutex;
  // By problem, without and with a sparse state.
  mutable std::unordered_map<Problem, PlannedCall, ProblemHash> plans[2];

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

  Result<PlannedCall> planned(const Problem& problem, bool sparse_state) const {
    const uint64_t epoch = registry_epoch();
    auto& cache = plans[sparse_state ? 1 : 0];
    {
      std::lock_guard lock(mutex);
      if (auto found = cache.find(problem); found != cache.end() && found->second.epoch == epoch)
        return found->second;
    }
    ExecutionContext call_context = context;
    call_context.sparse_state = sparse_state;
    const RoleQuery q = query_for(problem);
    const std::shared_ptr<const Decision> decision = selector.decide(q, problem, call_context);
    if (decision->report.support == SupportStatus::unsupported)
      return refusal(*decision, q, problem);
    FOVEA_TRY(
        std::unique_ptr<Plan> plan,
        decision->implementation->plan(decision->backend, problem, decision->spec, call_context));
    Receipt receipt = plan->receipt();
    receipt.fallback = decision->fallback;
    PlannedCall call{std::move(plan), std::make_shared<const Receipt>(std::move(receipt)), epoch};
    std::lock_guard lock(mutex);
    if (cache.size() >= kMaxPlans) cache.clear();
    cache[problem] = call;
    return call;
  }

  Result<std::shared_ptr<const Receipt>> run(const AttentionTensors& tensors,
                                             const Problem& problem,
                                             const CallOptions& options) const {
    FOVEA_CHECK(check_layer(layer, problem));
    FOVEA_TRY(PlannedCall call, planned(problem, options.sparse_state != nullptr));
    FOVEA_TRY(WorkspacePool::Lease lease, workspaces.borrow(call.plan->workspace_bytes()));
    FOVEA_CHECK(call.plan->run(tensors, {lease.data(), lease.bytes()}, options.stream));
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
  if (!facts) {
    FOVEA_TRY(DeviceFacts probed, probe_cpu());
    facts = std::move(probed);
  }
  auto state = std::make_unique<State>(std::move(layer), std::move(config), make_platform(*facts));
  if (executor == nullptr) {
    state->owned_executor = make_openmp_executor();
    executor = state->owned_executor.get();
  }
  state->context.facts = std::move(*facts);
  state->context.executor = executor;
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
  FOVEA_TRY(result.out, OwnedTensor::allocate(specs.out.dtype, specs.out.shape));
  tensors.out = result.out.view();
  if (problem.lse) {
    FOVEA_TRY(result.lse, OwnedTensor::allocate(specs.lse.dtype, specs.lse.shape));
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
  return state_->selector.decide(state_->query_for(problem), problem, state_->context);
}

ExecutionPathResult Attention::resolve_execution_path(const Problem& problem,
                                                      const ExecutionContext& context) const {
  ExecutionContext declared = context;
  declared.executor = state_->context.executor;
  return state_->selector.decide(state_->query_for(problem), problem, declared)->report;
}

Result<std::shared_ptr<const Plan>> Attention::plan(const Problem& problem) const {
  FOVEA_CHECK(validate(problem));
  FOVEA_CHECK(check_layer(state_->layer, problem));
  FOVEA_TRY(PlannedCall call, state_->planned(problem, false));
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
