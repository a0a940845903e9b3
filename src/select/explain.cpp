#include "fovea/explain.hpp"

#include <utility>

#include "src/backends/skip_decision.hpp"
#include "src/select/assumed_state.hpp"
#include "src/select/explain_entry.hpp"

namespace fovea {
namespace {

// Stands for "any call" when no problem is given: the smallest dense problem of the asked head
// size.
Problem nominal_problem(const ExplainQuery& query, PlatformId platform) {
  Problem p;
  p.dtype = p.out_dtype = platform == PlatformId::cpu ? kF32 : kBF16;
  if (query.policy.head_dim > 0) p.head_dim = p.dim_v = query.policy.head_dim;
  fill_strides(p);
  return p;
}

}  // namespace

namespace explain_entry {

ExplainEntry make(const Selector& selector, const ExplainQuery& query,
                  const ExecutionContext& context) {
  RoleQuery role{query.role, query.category, query.policy};
  const Problem problem = query.problem
                              ? *query.problem
                              : nominal_problem(query, selector.platform().facts().platform());
  if (query.problem) role.policy.head_dim = problem.head_dim;
  const Selection selection = selector.select(role);
  Problem asked = problem;
  ExecutionContext judged = context;
  bool unknown_video = false;
  if (!context.scheduled_dense) {
    const VideoShape video = query.video.value_or(VideoShape{});
    unknown_video =
        assume_sparse_state(selection.spec, video.frames, video.tokens_per_frame, asked, judged);
  }
  const std::shared_ptr<const Decision> decision = selector.decide(role, asked, judged);
  ExplainEntry entry;
  entry.role = query.role;
  entry.category = query.category;
  entry.layers = query.layers;
  entry.steps = query.steps;
  entry.problem = query.problem;
  entry.source = decision->source;
  if (selection.spec != nullptr) {
    entry.strictness = selection.spec->strictness;
    entry.spec = *selection.spec;
    const auto& skip = selection.spec->skip_softmax;
    if (skip && decision->backend == selection.spec->backend) {
      Problem unknown;
      unknown.seq_kv = 0;
      entry.skip =
          backends::skip_decision(selection.spec, query.problem ? problem : unknown, judged);
      if (skip->calibration) entry.skip_ignored_by = skip->calibration->ignored_by;
    }
  }
  entry.report = decision->report;
  // Whoever does not say the timestep asks about all of them.
  if (entry.skip && entry.skip->state == SkipState::unknown_timestep &&
      entry.report.support != SupportStatus::unsupported)
    entry.report.lossy = true;
  entry.assumed = decision->assumed;
  if (unknown_video) entry.report.density.reset();
  entry.trail = decision->trail;
  entry.nearest = decision->nearest;
  return entry;
}

bool refused(const ExplainEntry& entry) noexcept {
  return entry.report.support == SupportStatus::unsupported &&
         entry.strictness != Strictness::prefer;
}

}  // namespace explain_entry

std::vector<ExplainQuery> all_queries(const AttentionConfig& config) {
  std::vector<ExplainQuery> queries;
  ExplainQuery query;
  query.role = "default";
  queries.push_back(query);
  for (const auto& [role, spec] : config.per_role) {
    query.role = role;
    queries.push_back(query);
  }
  return queries;
}

Explanation explain(const AttentionConfig& config, std::shared_ptr<const Platform> platform,
                    const std::vector<ExplainQuery>& queries, const ExecutionContext& context) {
  Explanation out;
  out.facts = platform->facts();
  const Selector selector(std::move(platform), config);
  for (const ExplainQuery& query : queries.empty() ? all_queries(config) : queries) {
    out.entries.push_back(explain_entry::make(selector, query, context));
    out.refused = out.refused || explain_entry::refused(out.entries.back());
  }
  return out;
}

}  // namespace fovea
