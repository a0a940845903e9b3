#include <algorithm>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "fovea/log.hpp"
#include "fovea/registry.hpp"
#include "fovea/schedule.hpp"
#include "fovea/select.hpp"
#include "fovea/validation.hpp"
#include "src/config/rules.hpp"
#include "src/core/log.hpp"

namespace fovea {
namespace {

// Bounds the decision cache of one selector; a model has a few hundred distinct problems.
constexpr size_t kMaxDecisions = 4096;

// What a decision depends on besides the problem. Facts and configuration are fixed per selector.
struct ContextKey {
  PolicyQuery policy;
  Executor* executor = nullptr;
  Device device;
  bool local = true, piecewise = false, paged_kv = false, require_fullgraph = false,
       sparse_state = false, host_documents = false, host_lengths = false, npu_attn_varlen = false;
  std::optional<BackendName> scheduled_dense;
  MaskMode mask_mode = MaskMode::none;
  PackingMode packing_mode = PackingMode::none;
  ParallelStrategy parallel_strategy = ParallelStrategy::none;
  uint32_t boundaries = 0;
  std::optional<double> laser_input_scale;
  std::optional<double> timestep;
  int64_t protected_kv_prefix = 0;
  std::optional<VideoLayout> video_layout;
  std::string kv_cache_dtype;
  std::string prepared;
  std::string role;
  std::string category;

  bool operator==(const ContextKey&) const = default;
};

struct DecisionKey {
  uint64_t epoch = 0;
  ContextKey context;
  Problem problem;

  bool operator==(const DecisionKey&) const = default;
};

struct DecisionHash {
  size_t operator()(const DecisionKey& key) const noexcept {
    return hash_value(key.problem) ^ (std::hash<std::string>{}(key.context.role) << 1);
  }
};

bool matches(const DecisionKey& key, uint64_t epoch, const RoleQuery& query, const Problem& problem,
             const ExecutionContext& context) {
  const ContextKey& k = key.context;
  uint32_t boundaries = 0;
  for (OuterBoundary b : context.outer_boundaries) boundaries |= 1u << static_cast<uint32_t>(b);
  return key.epoch == epoch && k.policy == query.policy && k.executor == context.executor &&
         k.device == context.device && k.local == context.local &&
         k.piecewise == context.piecewise && k.paged_kv == context.paged_kv &&
         k.require_fullgraph == context.require_fullgraph &&
         k.sparse_state == context.sparse_state && k.scheduled_dense == context.scheduled_dense &&
         k.mask_mode == context.mask_mode && k.packing_mode == context.packing_mode &&
         k.parallel_strategy == context.parallel_strategy && k.boundaries == boundaries &&
         k.kv_cache_dtype == context.kv_cache_dtype && k.prepared == context.prepared &&
         k.laser_input_scale == context.laser_input_scale && k.timestep == context.timestep &&
         k.protected_kv_prefix == context.protected_kv_prefix &&
         k.video_layout == context.video_layout && k.host_documents == context.host_documents &&
         k.host_lengths == context.host_lengths && k.npu_attn_varlen == context.npu_attn_varlen &&
         k.role == query.role && k.category == query.category && key.problem == problem;
}

ContextKey make_context_key(const RoleQuery& query, const ExecutionContext& c) {
  ContextKey k;
  k.policy = query.policy;
  k.executor = c.executor;
  k.device = c.device;
  k.local = c.local;
  k.piecewise = c.piecewise;
  k.paged_kv = c.paged_kv;
  k.require_fullgraph = c.require_fullgraph;
  k.sparse_state = c.sparse_state;
  k.scheduled_dense = c.scheduled_dense;
  k.mask_mode = c.mask_mode;
  k.packing_mode = c.packing_mode;
  k.parallel_strategy = c.parallel_strategy;
  for (OuterBoundary b : c.outer_boundaries) k.boundaries |= 1u << static_cast<uint32_t>(b);
  k.kv_cache_dtype = c.kv_cache_dtype;
  k.prepared = c.prepared;
  k.laser_input_scale = c.laser_input_scale;
  k.timestep = c.timestep;
  k.protected_kv_prefix = c.protected_kv_prefix;
  k.video_layout = c.video_layout;
  k.host_documents = c.host_documents;
  k.host_lengths = c.host_lengths;
  k.npu_attn_varlen = c.npu_attn_varlen;
  k.role = query.role;
  k.category = query.category;
  return k;
}

std::string role_text(const std::string& role, const std::string& category) {
  return "role=" + role + (category.empty() ? "" : " (category=" + category + ")");
}

// "package" admits any package; otherwise the provider must be the one that would run.
bool provider_matches(std::string_view wanted, std::string_view actual) {
  if (wanted.empty()) return true;
  return wanted == actual || (wanted == "package" && actual.starts_with("package "));
}

// What loads a verdict's implementation: its path, or the package that provides it.
std::string registry_path(const PolicyVerdict& verdict) {
  constexpr std::string_view kPackage = "package ";
  if (!verdict.path.empty() || !verdict.provider.starts_with(kPackage)) return verdict.path;
  const std::string package = verdict.provider.substr(kPackage.size());
  return "package:" + package.substr(0, package.find(' '));
}

// What keeps a path that runs from being called verified.
Reason unvalidated(const ExecutionPathResult& report, const Problem& problem,
                   const ExecutionContext& context) {
  if (context.parallel_strategy == ParallelStrategy::none && context.outer_boundaries.empty())
    return {
        ReasonCode::unvalidated,
        "path",
        report.path + ", " +
            missing_validation({report.backend, report.provider, report.path}, problem,
                               context.facts),
        {},
        validation_remedy({report.backend, report.provider, report.path}, problem, context.facts)};
  return {ReasonCode::unvalidated, "surroundings", "a parallel strategy or an outer boundary",
          "the kernel on its own", "validate the combination in the host engine"};
}

// A refusal always says why.
Reason unexplained(BackendName backend) {
  return {ReasonCode::plugin,
          name(backend),
          "refused without a reason",
          {},
          "choose another backend and report it to the author of this one"};
}

// Reasons to pass over one candidate before its backend is asked.
std::vector<Reason> spec_refusals(const Candidate& candidate, const ExecutionContext& context) {
  std::vector<Reason> reasons = candidate.verdict.reasons;
  if (candidate.spec != nullptr && candidate.spec->from_factory && !context.sparse_state)
    reasons.push_back({ReasonCode::sparse_state, "sparse_state", "none", "a SparseAttentionState",
                       "pass sparse_state with the call"});
  return reasons;
}

}  // namespace

struct Selector::State {
  struct VerdictKey {
    int32_t backend = -1;  // -1: automatic
    PolicyQuery query;
    uint64_t epoch = 0;
    auto tie() const {
      return std::tie(backend, query.head_dim, query.mask_free, query.provider, epoch);
    }
    bool operator<(const VerdictKey& other) const { return tie() < other.tie(); }
  };

  State(std::shared_ptr<const Platform> p, const AttentionConfig& c)
      : platform(std::move(p)), config(c) {}

  const std::shared_ptr<const Platform> platform;
  const AttentionConfig& config;

  std::mutex verdict_mutex;
  std::map<VerdictKey, std::vector<PolicyVerdict>> verdicts;

  std::mutex decision_mutex;
  std::unordered_map<DecisionKey, std::shared_ptr<const Decision>, DecisionHash> decisions;
  const DecisionKey* recent_key = nullptr;  // points into `decisions`
  std::shared_ptr<const Decision> recent;

  // The policy's answer, cached. One entry for a named backend, the whole list for the automatic
  // choice.
  std::vector<PolicyVerdict> verdicts_for(std::optional<BackendName> backend,
                                          const PolicyQuery& query) {
    const VerdictKey key{backend ? int32_t{backend->id()} : -1, query, registry_epoch()};
    std::lock_guard lock(verdict_mutex);
    if (auto found = verdicts.find(key); found != verdicts.end()) return found->second;
    std::vector<PolicyVerdict> list =
        backend ? std::vector{platform->judge(*backend, query)} : platform->preference(query);
    // A run-time registration stands in for a missing in-tree implementation.
    for (PolicyVerdict& verdict : list)
      if (is_overridden(verdict.backend))
        std::erase_if(verdict.reasons,
                      [](const Reason& r) { return r.code == ReasonCode::not_built; });
    verdicts.emplace(key, list);
    return list;
  }

  // Asks one candidate. Fills `report` and `implementation` and returns the reasons to pass it
  // over, if any.
  std::vector<Reason> ask(const Candidate& candidate, const Problem& problem,
                          const ExecutionContext& context, ExecutionPathResult& report,
                          std::shared_ptr<const Backend>& implementation) const {
    std::vector<Reason> reasons = spec_refusals(candidate, context);
    if (!reasons.empty()) return reasons;
    auto loaded = load_backend(candidate.backend, registry_path(candidate.verdict));
    if (!loaded) {
      if (loaded.error().reasons.empty())
        return {{ReasonCode::plugin, "backend", name(candidate.backend), "a backend that loads",
                 loaded.error().message}};
      return std::move(loaded).error().reasons;
    }
    implementation = std::move(loaded).value();
    report = implementation->resolve(candidate.backend, problem, candidate.spec, context);
    if (report.support == SupportStatus::unsupported) {
      if (report.reasons.empty()) report.reasons = {unexplained(candidate.backend)};
      return report.reasons;
    }
    if (candidate.spec != nullptr && !provider_matches(candidate.spec->provider, report.provider))
      return {{ReasonCode::provider, "provider", candidate.spec->provider, report.provider,
               "remove provider or choose a backend that it provides"}};
    return {};
  }

  Decision decide(const Selection& selection, const Problem& problem,
                  const ExecutionContext& context) {
    Decision d;
    d.source = selection.source;
    d.problem = problem;
    // A dense backend that stands in for a sparse one reads every key.
    Problem dense = problem;
    dense.sparse.reset();
    bool chosen = false;
    for (const Candidate& candidate : selection.candidates) {
      TrailEntry entry{candidate.backend, TrailVerdict::not_tried, {}};
      if (!chosen) {
        ExecutionPathResult report;
        std::shared_ptr<const Backend> implementation;
        const bool stands_in = selection.spec != nullptr &&
                               config::is_sparse(selection.spec->backend) &&
                               candidate.backend != selection.spec->backend;
        const Problem& asked = stands_in ? dense : problem;
        entry.reasons = ask(candidate, asked, context, report, implementation);
        if (entry.reasons.empty()) {
          entry.verdict = TrailVerdict::selected;
          chosen = true;
          d.backend = candidate.backend;
          d.spec = candidate.spec;
          d.problem = asked;
          d.report = std::move(report);
          d.assumed = candidate.verdict.assumed;
          if (d.report.support == SupportStatus::unmigrated && d.report.reasons.empty())
            d.report.reasons.push_back(unvalidated(d.report, asked, context));
          d.implementation = std::move(implementation);
        } else {
          entry.verdict = TrailVerdict::rejected;
        }
      }
      d.trail.push_back(std::move(entry));
    }
    if (!chosen) {
      refuse(selection, problem, context, d);
    } else if (selection.spec != nullptr && d.backend != selection.candidates.front().backend) {
      d.fallback = Fallback{selection.candidates.front().backend, d.trail.front().reasons};
      log_fallback(selection, d);
    }
    d.report.platform = context.facts.platform();
    d.report.parallel_strategy = context.parallel_strategy;
    return d;
  }

  void refuse(const Selection& selection, const Problem& problem, const ExecutionContext& context,
              Decision& d) const {
    if (!selection.candidates.empty()) {
      d.backend = selection.candidates.front().backend;
      d.spec = selection.candidates.front().spec;
      d.report.provider = selection.candidates.front().verdict.provider;
      d.report.reasons = d.trail.front().reasons;
    }
    d.report.backend = d.backend;
    d.report.support = SupportStatus::unsupported;
    if (d.report.reasons.empty())
      d.report.reasons.push_back(
          {ReasonCode::not_registered, "backend", "none", "at least one backend", {}});
    // The pattern of a state goes with its backend.
    Problem asked = problem;
    if (context.sparse_state) asked.sparse.reset();
    for (PolicyVerdict& verdict : platform->preference({problem.head_dim, false, {}})) {
      const Candidate candidate{verdict.backend, nullptr, verdict};
      ExecutionPathResult report;
      std::shared_ptr<const Backend> implementation;
      if (ask(candidate, asked, context, report, implementation).empty()) {
        d.nearest = verdict.backend;
        break;
      }
    }
  }

  void log_fallback(const Selection& selection, const Decision& d) {
    if (config::is_sparse(d.fallback->from) &&
        d.fallback->reasons.front().code == ReasonCode::sparse_state) {
      log_once(LogLevel::warning,
               "Sparse attention requires sparse_state, falling back to " + name(d.backend),
               role_text(selection.role, selection.category));
      return;
    }
    log_once(LogLevel::warning, name(d.fallback->from) + " was preferred for " +
                                    role_text(selection.role, selection.category) +
                                    " but cannot run: " + sentence(d.fallback->reasons) +
                                    "; running " + name(d.backend));
  }
};

std::string_view name(TrailVerdict verdict) noexcept {
  switch (verdict) {
    case TrailVerdict::selected:
      return "selected";
    case TrailVerdict::rejected:
      return "rejected";
    case TrailVerdict::not_tried:
      return "not_tried";
  }
  return "unknown";
}

Selector::Selector(std::shared_ptr<const Platform> platform, const AttentionConfig& config)
    : state_(std::make_unique<State>(std::move(platform), config)) {}
Selector::~Selector() = default;

const Platform& Selector::platform() const noexcept { return *state_->platform; }

Selection Selector::select(const RoleQuery& query) const {
  const ResolvedSpec resolved = state_->config.resolve(query.role, query.category);
  Selection s;
  s.role = query.role;
  s.category = query.category;
  s.spec = resolved.spec;
  s.source = resolved.spec != nullptr ? resolved.source : "platform default";
  auto add = [&](PolicyVerdict verdict, const AttentionSpec* spec) {
    const bool listed =
        std::any_of(s.candidates.begin(), s.candidates.end(),
                    [&](const Candidate& c) { return c.backend == verdict.backend; });
    if (!listed) s.candidates.push_back({verdict.backend, spec, std::move(verdict)});
  };
  if (s.spec != nullptr) {
    PolicyQuery named = query.policy;
    named.provider = s.spec->provider;
    add(state_->verdicts_for(s.spec->backend, named).front(), s.spec);
    if (s.spec->strictness == Strictness::prefer && (s.spec->radial || s.spec->local_sparse))
      add(state_->verdicts_for(dense_backend(*s.spec), query.policy).front(), nullptr);
  }
  if (s.spec == nullptr || s.spec->strictness == Strictness::prefer)
    for (PolicyVerdict& verdict : state_->verdicts_for(std::nullopt, query.policy))
      add(std::move(verdict), nullptr);
  return s;
}

std::shared_ptr<const Decision> Selector::decide(const RoleQuery& query, const Problem& problem,
                                                 const ExecutionContext& context) const {
  State& state = *state_;
  const uint64_t epoch = registry_epoch();
  // What a mask holds stands in no key; its plans are kept by the layer.
  const bool cached = context.block_mask == nullptr;
  if (cached) {
    std::lock_guard lock(state.decision_mutex);
    if (state.recent != nullptr && matches(*state.recent_key, epoch, query, problem, context))
      return state.recent;
  }
  DecisionKey key{epoch, make_context_key(query, context), problem};
  if (cached) {
    std::lock_guard lock(state.decision_mutex);
    if (auto found = state.decisions.find(key); found != state.decisions.end()) {
      state.recent_key = &found->first;
      state.recent = found->second;
      return found->second;
    }
  }
  Selection selection = select(query);
  if (context.scheduled_dense) {
    // The schedule names what runs; under `prefer` the platform's list stands behind it.
    std::erase_if(selection.candidates, [&](const Candidate& c) {
      return c.spec != nullptr || c.backend == *context.scheduled_dense;
    });
    PolicyVerdict dense = state.verdicts_for(*context.scheduled_dense, query.policy).front();
    selection.candidates.insert(selection.candidates.begin(),
                                {*context.scheduled_dense, nullptr, std::move(dense)});
  }
  ExecutionContext judged = context;
  judged.facts = state.platform->facts();
  auto decision = std::make_shared<const Decision>(state.decide(selection, problem, judged));
  if (decision->report.support != SupportStatus::unsupported)
    log_once(LogLevel::info, "Resolved attention backend " + name(decision->backend) + " for " +
                                 role_text(query.role, query.category) + " via " +
                                 selection.source);
  if (!cached) return decision;
  std::lock_guard lock(state.decision_mutex);
  if (state.decisions.size() >= kMaxDecisions) {
    state.recent_key = nullptr;
    state.recent = nullptr;
    state.decisions.clear();
  }
  const auto [entry, inserted] = state.decisions.emplace(std::move(key), decision);
  state.recent_key = &entry->first;
  state.recent = entry->second;
  return entry->second;
}

}  // namespace fovea
