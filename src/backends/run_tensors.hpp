// The check that every plan makes first: are these the tensors it was made for?
#pragma once

#include <array>
#include <cstddef>
#include <iterator>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"
#include "src/core/tensor_members.hpp"

namespace fovea::backends {

// q, k, v, mask, kv_lengths, cu_seqlens and block lists against the planned problem: presence,
// device, dtype, shape, strides (axes of size 1 have none), null data. Reads no element. Error
// invalid_tensor names the tensor and the field; allocates for the message only.
Status check_inputs(const Problem& planned, const AttentionTensors& tensors, Device device = kCpu);

// check_inputs, and out and lse: shape, dtype, contiguous, memory apart from every input.
// `alignment`: bytes that the addresses of q, k, v and out must be divisible by.
Status check_tensors(const Problem& planned, const AttentionTensors& tensors, Device device = kCpu,
                     size_t alignment = 1);

// check_tensors for one problem, most of it done beforehand: tensors with exactly the planned sizes
// and strides take a few comparisons, all others the whole check. Thread-safe.
class PlannedTensors {
 public:
  PlannedTensors(const Problem& planned, Device device, size_t alignment);
  Status check(const AttentionTensors& tensors) const;

 private:
  bool plainly_right(const AttentionTensors& tensors) const noexcept;

  Problem problem_;
  Device device_;
  size_t alignment_;
  // In the order of kTensorMembers; rank 0: absent. No views for problems whose masks or lists may
  // have several forms.
  std::array<TensorView, std::size(kTensorMembers)> views_{};
  std::array<size_t, std::size(kTensorMembers)> bytes_{};
  bool several_forms_ = false;
};

// Errors: workspace_too_small, invalid_argument (not aligned to Plan::kWorkspaceAlignment).
Status check_workspace(Workspace workspace, size_t needed);

}  // namespace fovea::backends
