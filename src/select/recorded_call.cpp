#include "fovea/recorded_call.hpp"

#include <string>
#include <utility>

#include "src/cuda_device/memory.hpp"

namespace fovea {

Status RecordedCall::take_workspace() {
  const size_t bytes = plan_->workspace_bytes();
  if (bytes == 0) return {};
  // Room to align: owned tensors are aligned to less than workspaces.
  const int64_t size[] = {static_cast<int64_t>(bytes + Plan::kWorkspaceAlignment)};
  if (device_.type != DeviceType::cuda) {
    FOVEA_TRY(workspace_, OwnedTensor::allocate(kU8, size));
    return {};
  }
  FOVEA_TRY(cuda::Memory memory,
            cuda::Memory::allocate(bytes + Plan::kWorkspaceAlignment, device_, {}));
  TensorView view = make_view(memory.data(), kU8, size, device_);
  workspace_ = OwnedTensor::adopt(view, std::make_shared<cuda::Memory>(std::move(memory)));
  return {};
}

Status RecordedCall::run(const AttentionTensors& tensors, Stream stream) const noexcept {
  AttentionTensors call = apply(form_, tensors);
  call.prepared = prepared_.get();
  const uintptr_t address = reinterpret_cast<uintptr_t>(workspace_.view().data);
  constexpr uintptr_t kMask = Plan::kWorkspaceAlignment - 1;
  void* const aligned = reinterpret_cast<void*>((address + kMask) & ~kMask);
  return plan_->run(call, {aligned, plan_->workspace_bytes()}, stream);
}

Result<RecordedCall> RecordedCall::rebind(std::shared_ptr<const PreparedTensors> prepared) const {
  const auto text = [](const std::shared_ptr<const PreparedTensors>& set) {
    return set == nullptr ? std::string("none") : set->signature();
  };
  if (text(prepared) != text(prepared_))
    return Error{ErrorCode::invalid_argument,
                 "rebind: the prepared tensors are " + text(prepared) + ", recorded with " +
                     text(prepared_) + "; record a call for them",
                 {}};
  RecordedCall other;
  other.executor_ = executor_;
  other.plan_ = plan_;
  other.receipt_ = receipt_;
  other.prepared_ = std::move(prepared);
  other.form_ = form_;
  other.device_ = device_;
  FOVEA_CHECK(other.take_workspace());
  return Result<RecordedCall>(std::move(other));
}

}  // namespace fovea
