// The check that every plan makes first: are these the tensors it was made for?
#pragma once

#include <cstddef>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea::backends {

// q, k, v, mask, kv_lengths, cu_seqlens and block lists against the planned problem: presence,
// device, dtype, shape, strides (axes of size 1 have none), null data. Reads no element. Error
// invalid_tensor names the tensor and the field; allocates for the message only.
Status check_inputs(const Problem& planned, const AttentionTensors& tensors, Device device = kCpu);

// check_inputs, and out and lse: shape, dtype, contiguous, memory apart from every input.
// `alignment`: bytes that the addresses of q, k, v and out must be divisible by.
Status check_tensors(const Problem& planned, const AttentionTensors& tensors, Device device = kCpu,
                     size_t alignment = 1);

// Errors: workspace_too_small, invalid_argument (not aligned to Plan::kWorkspaceAlignment).
Status check_workspace(Workspace workspace, size_t needed);

}  // namespace fovea::backends
