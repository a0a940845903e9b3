// A call that is decided once and run many times.
#pragma once

#include <memory>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/executor.hpp"
#include "fovea/metadata.hpp"
#include "fovea/owned_tensor.hpp"
#include "fovea/prepared.hpp"

namespace fovea {

// What Attention::record makes: the plan, the workspace and the prepared tensors of one call. It
// owns or shares all of them, so that it runs on after the layer, and the caller's own reference to
// the prepared tensors, are gone; destroying it lets go of them. Copies are not made; moves are
// cheap.
class RecordedCall {
 public:
  RecordedCall(RecordedCall&&) noexcept = default;
  RecordedCall& operator=(RecordedCall&&) noexcept = default;

  // Runs on tensors of the recorded problem, as the caller describes them, with out and, when it
  // was asked for, lse. Allocates nothing, decides nothing. One run at a time: runs share the
  // workspace. Errors as Plan::run.
  FOVEA_API Status run(const AttentionTensors& tensors, Stream stream = {}) const noexcept;

  // The same executable for other prepared tensors of the same signature: the plan is shared, the
  // values and the workspace are not. Errors: invalid_argument (another signature), out_of_memory.
  FOVEA_API Result<RecordedCall> rebind(std::shared_ptr<const PreparedTensors> prepared) const;

  // Equal for recordings that share their executable.
  const std::shared_ptr<const Plan>& plan() const noexcept { return plan_; }
  const std::shared_ptr<const Receipt>& receipt() const noexcept { return receipt_; }

 private:
  friend class Attention;
  RecordedCall() = default;
  Status take_workspace();

  std::shared_ptr<Executor> executor_;  // null: the caller's own, which outlives this
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Receipt> receipt_;
  std::shared_ptr<const PreparedTensors> prepared_;
  NormalForm form_;
  Device device_ = kCpu;
  OwnedTensor workspace_;
};

}  // namespace fovea
