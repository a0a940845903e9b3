// The attention calls of a model as questions to explain.
#include <algorithm>
#include <string_view>

#include "fovea/explain.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

Error refuse(std::string message) { return {ErrorCode::invalid_argument, std::move(message), {}}; }

Problem problem_of(const ModelRole& role, DType dtype) {
  Problem problem;
  problem.dtype = problem.out_dtype = dtype;
  problem.heads_q = problem.heads_kv = role.heads;
  problem.head_dim = problem.dim_v = role.head_dim;
  problem.seq_q = role.seq_q;
  problem.seq_kv = role.seq_kv;
  problem.mask.kind = role.mask;
  fill_strides(problem);
  return problem;
}

}  // namespace

Result<ModelRun> model_queries(const ModelDescription& model, const ModelQuery& query) {
  if (query.steps && *query.steps < 1)
    return refuse(text::concat("steps must be at least 1, not ", *query.steps));
  if (query.layers && *query.layers < 1)
    return refuse(text::concat("layers must be at least 1, not ", *query.layers));
  ModelRun run;
  std::vector<std::string_view> names;
  int64_t most = 0;  // layers of a role
  for (const ModelRole& role : model.roles) {
    names.push_back(role.role);
    if (query.role && *query.role != role.role) continue;
    most = std::max(most, role.layers);
    ExplainQuery asked;
    asked.role = role.role;
    asked.category = query.category.empty() ? role.category : query.category;
    asked.policy.mask_free = query.mask_free || model.mask_free;
    asked.problem = problem_of(role, query.dtype);
    if (role.latent_frames > 0) asked.video = {role.latent_frames, role.tokens_per_frame};
    run.queries.push_back(std::move(asked));
    run.lengths.push_back({query.steps.value_or(model.steps),
                           std::min(query.layers.value_or(role.layers), role.layers),
                           query.sigmas});
  }
  if (query.layers && *query.layers > most && most > 0)
    return refuse(text::concat("layers ", *query.layers, " is more than the ", most,
                               " that a role of ", model.name, " has"));
  if (run.queries.empty())
    return refuse(text::concat("role ", text::quote(query.role.value_or("")), " is not a role of ",
                               model.name, " (it has: ", text::join(names), ")",
                               text::suggestion(query.role.value_or(""), names)));
  return run;
}

}  // namespace fovea
