// What every plan on the CPU shares: the checks before a run, the executor, the receipt.
#pragma once

#include <optional>

#include "fovea/backend.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/run_tensors.hpp"

namespace fovea::backends {

// The context's executor, or the serial one.
Executor& executor_of(const ExecutionContext& context) noexcept;

// The refusal of facts that do not describe a CPU.
std::optional<Reason> needs_cpu(const DeviceFacts& facts);

// make_receipt() of a plan that runs on the CPU.
Receipt make_cpu_receipt(const ExecutionPathResult& report, const Instance& instance);

// Checks tensors, workspace and values, and that block lists keep the protected keys, then
// executes.
class CpuPlan : public Plan {
 public:
  size_t workspace_bytes() const noexcept final { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept final { return receipt_; }
  Status run(const AttentionTensors& tensors, Workspace workspace,
             Stream stream) const noexcept final;

 protected:
  CpuPlan(Problem problem, const ExecutionContext& context, Receipt receipt);

  // The tensors are those of the problem, their values are legal.
  virtual void execute(const AttentionTensors& tensors, void* workspace) const noexcept = 0;

  const Problem& problem() const noexcept { return problem_; }
  Executor& executor() const noexcept { return executor_; }

 private:
  const Problem problem_;
  const PlannedTensors tensors_;
  Executor& executor_;
  const int64_t protected_kv_prefix_;
  const Receipt receipt_;
};

}  // namespace fovea::backends
