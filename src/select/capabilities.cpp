#include <memory>
#include <utility>

#include "fovea/registry.hpp"
#include "fovea/select.hpp"

namespace fovea {

ExecutionPathResult resolve_capabilities(BackendName backend, const ExecutionContext& context) {
  ExecutionPathResult r;
  r.backend = backend;
  r.platform = context.facts.platform();
  r.parallel_strategy = context.parallel_strategy;
  r.path = "unmigrated";
  PolicyVerdict verdict = make_platform(context.facts)->judge(backend, {});
  r.provider = verdict.provider;
  // A run-time registration stands in for a missing in-tree implementation.
  if (is_overridden(backend))
    std::erase_if(verdict.reasons, [](const Reason& reason) {
      return reason.code == ReasonCode::not_built || reason.code == ReasonCode::not_registered;
    });
  r.reasons = std::move(verdict.reasons);
  r.support = r.reasons.empty() ? SupportStatus::unmigrated : SupportStatus::unsupported;
  return r;
}

}  // namespace fovea
