#include "src/backends/cpu_plan.hpp"

#include <utility>

#include "fovea/attention.hpp"
#include "src/backends/run_tensors.hpp"

namespace fovea::backends {

Executor& executor_of(const ExecutionContext& context) noexcept {
  return context.executor != nullptr ? *context.executor : serial_executor();
}

std::optional<Reason> needs_cpu(const DeviceFacts& facts) {
  if (facts.platform() == PlatformId::cpu) return std::nullopt;
  return Reason{ReasonCode::platform, "platform", std::string(name(facts.platform())), "cpu",
                "run it on the CPU"};
}

Receipt make_cpu_receipt(const ExecutionPathResult& report, const Instance& instance) {
  Receipt receipt = make_receipt(report, instance);
  receipt.device = "cpu";
  return receipt;
}

CpuPlan::CpuPlan(Problem problem, const ExecutionContext& context, Receipt receipt)
    : problem_(std::move(problem)), executor_(executor_of(context)), receipt_(std::move(receipt)) {}

Status CpuPlan::run(const AttentionTensors& tensors, Workspace workspace, Stream) const noexcept {
  FOVEA_CHECK(check_tensors(problem_, tensors));
  FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
  FOVEA_CHECK(check_values(tensors, problem_));
  execute(tensors, workspace.data);
  return {};
}

}  // namespace fovea::backends
