#include "src/backends/flash/backend.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/backends/flash_sm80/backend.hpp"
#include "src/backends/flash_sm90/backend.hpp"

namespace fovea::backends {
namespace {

bool for_another_device(const std::vector<Reason>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    return reason.code == ReasonCode::architecture || reason.code == ReasonCode::platform;
  });
}

// A family's plan whose receipt also says why better families did not take the problem.
class DispatchedPlan final : public Plan {
 public:
  DispatchedPlan(std::unique_ptr<Plan> plan, std::vector<Reason> reasons)
      : plan_(std::move(plan)), receipt_(plan_->receipt()) {
    receipt_.dispatch = std::move(reasons);
  }

  size_t workspace_bytes() const noexcept override { return plan_->workspace_bytes(); }
  const Receipt& receipt() const noexcept override { return receipt_; }
  Status run(const AttentionTensors& tensors, Workspace workspace,
             Stream stream) const noexcept override {
    return plan_->run(tensors, workspace, stream);
  }

 private:
  std::unique_ptr<Plan> plan_;
  Receipt receipt_;
};

// Asks its families best first. Which one runs is dispatch: it shows as the path, never as a
// fallback.
class FlashBackend final : public Backend {
 public:
  explicit FlashBackend(std::vector<std::shared_ptr<const Backend>> families)
      : families_(std::move(families)) {}

  std::string_view path() const noexcept override { return "builtin:flash"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    Answer answer = ask(name, problem, spec, context);
    FOVEA_TRY(std::unique_ptr<Plan> plan, answer.family->plan(name, problem, spec, context));
    return std::unique_ptr<Plan>(
        std::make_unique<DispatchedPlan>(std::move(plan), std::move(answer.passed_over)));
  }

 private:
  struct Answer {
    const Backend* family = nullptr;
    ExecutionPathResult report;
    std::vector<Reason> passed_over;
  };

  // The first family that can run the problem, else the one with the fewest reasons against it, the
  // last of them on a tie: later families take more.
  Answer ask(BackendName name, const Problem& problem, const AttentionSpec* spec,
             const ExecutionContext& context) const {
    Answer closest;
    std::vector<Reason> passed_over;
    for (const auto& family : families_) {
      ExecutionPathResult report = family->resolve(name, problem, spec, context);
      if (report.support != SupportStatus::unsupported)
        return {family.get(), std::move(report), std::move(passed_over)};
      if (!for_another_device(report.reasons))
        passed_over.insert(passed_over.end(), report.reasons.begin(), report.reasons.end());
      if (closest.family == nullptr || report.reasons.size() <= closest.report.reasons.size())
        closest = {family.get(), std::move(report), {}};
    }
    return closest;
  }

  std::vector<std::shared_ptr<const Backend>> families_;
};

}  // namespace

std::shared_ptr<const Backend> make_flash_backend() {
  return std::make_shared<const FlashBackend>(
      std::vector{make_flash_sm90_backend(), make_flash_sm80_backend()});
}

}  // namespace fovea::backends
