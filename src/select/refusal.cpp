// The error of a decision that cannot run.
#include <string>

#include "fovea/select.hpp"

namespace fovea {
namespace {

// The group of the first refusal decides the code.
ErrorCode code_of(const std::vector<Reason>& reasons) {
  switch (reasons.front().code) {
    case ReasonCode::not_built:
    case ReasonCode::not_registered:
      return ErrorCode::not_built;
    case ReasonCode::package:
    case ReasonCode::plugin:
      return ErrorCode::not_available;
    default:
      return ErrorCode::unsupported;
  }
}

std::string remedies(const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons)
    if (!reason.remedy.empty() && text.find(reason.remedy) == std::string::npos)
      text += (text.empty() ? "" : "; ") + reason.remedy;
  return text;
}

}  // namespace

Error refusal(const Decision& decision, const RoleQuery& query, const Problem& problem) {
  Error error;
  error.code = code_of(decision.report.reasons);
  error.message = "role '" + query.role + "' (" + decision.source + "): ";
  for (const TrailEntry& entry : decision.trail) {
    if (entry.verdict != TrailVerdict::rejected) continue;
    if (!error.reasons.empty()) error.message += ". ";
    error.message +=
        name(entry.backend) + " cannot run " + to_string(problem) + ": " + sentence(entry.reasons);
    error.reasons.insert(error.reasons.end(), entry.reasons.begin(), entry.reasons.end());
  }
  if (error.reasons.empty()) {
    error.message += sentence(decision.report.reasons);
    error.reasons = decision.report.reasons;
  }
  if (const std::string text = remedies(error.reasons); !text.empty())
    error.message += ". To do: " + text;
  if (decision.nearest) error.message += ". Nearest that can: " + name(*decision.nearest);
  error.message += ".";
  return error;
}

}  // namespace fovea
