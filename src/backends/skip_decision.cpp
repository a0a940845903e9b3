#include "src/backends/skip_decision.hpp"

namespace fovea::backends {

std::optional<SkipDecision> skip_decision(const AttentionSpec* spec, const Problem& problem,
                                          const ExecutionContext& context) noexcept {
  if (spec == nullptr || !spec->skip_softmax) return std::nullopt;
  const bool documents = problem.layout == Layout::packed && problem.max_document_kv > 0;
  return decide_skip(*spec->skip_softmax, documents ? problem.max_document_kv : problem.seq_kv,
                     context.timestep);
}

std::optional<double> gate_side(const AttentionSpec* spec,
                                std::optional<double> timestep) noexcept {
  if (!timestep || spec == nullptr || !spec->skip_softmax) return std::nullopt;
  const double gate = spec->skip_softmax->disabled_until_timestep;
  if (gate <= 0) return std::nullopt;
  return *timestep <= gate ? 0.0 : 1.0;
}

}  // namespace fovea::backends
