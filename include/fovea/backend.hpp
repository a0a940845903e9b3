// What stands behind a backend name: resolve, plan, run.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"
#include "fovea/receipt.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

class PreparedTensors;

// The tensors of one call; absent ones have rank 0. Nothing is owned. q [B,Sq,Hq,D] (or in
// `layout`), k, v [B,Skv,Hkv,D|Dv], out [B,Sq,Hq,Dv] contiguous, lse f32 [B,Hq,Sq] ([Hq,Tq]
// packed).
struct AttentionTensors {
  TensorView q, k, v, out;
  TensorView lse;
  TensorView mask;
  TensorView kv_lengths;    // int32/int64 [B]
  TensorView cu_seqlens_q;  // int32 [documents + 1]
  TensorView cu_seqlens_kv;
  // The blocks of keys that every block of queries reads, ascending; other keys are hidden.
  // block_counts int32 [B or 1, Hq or 1, ceil(Sq / block_q)], block_indices int32 [.., most], of
  // which the first count of a row are read. Contiguous, on the device of q.
  TensorView block_counts;
  TensorView block_indices;
  // Optional: uint8 beside block_indices, 1 where `mask` hides tokens inside the block; in the
  // other blocks it must hide nothing, and need not be read.
  TensorView block_partial;
  const PreparedTensors* prepared = nullptr;  // those of the context's signature, or none
};

// Caller's scratch memory, aligned to Plan::kWorkspaceAlignment.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// A device stream handle (cudaStream_t); ignored by CPU plans.
struct Stream {
  void* handle = nullptr;
};

// An immutable, ready-to-run decision for one problem. Thread-safe: runs with distinct workspaces
// may overlap.
class Plan {
 public:
  static constexpr size_t kWorkspaceAlignment = 256;

  virtual ~Plan() = default;
  virtual size_t workspace_bytes() const noexcept = 0;
  virtual const Receipt& receipt() const noexcept = 0;
  // Tensors must have the shapes, strides and dtypes of the planned problem; pointers may differ
  // from call to call. Allocates nothing, decides nothing, does not synchronise the device. Value
  // errors that the CPU checks (mask values, lengths) leave the outputs untouched.
  virtual Status run(const AttentionTensors& tensors, Workspace workspace,
                     Stream stream) const noexcept = 0;
};

// Stateless and thread-safe. resolve is pure: it touches no device memory and reads no tensor
// values. plan succeeds exactly when resolve says supported or unmigrated for the same arguments
// (and context.local).
class Backend {
 public:
  virtual ~Backend() = default;
  // e.g. "builtin:cpu_flash"
  virtual std::string_view path() const noexcept = 0;
  // `name` is the name it was reached through; `spec` is null for a platform default.
  virtual ExecutionPathResult resolve(BackendName name, const Problem& problem,
                                      const AttentionSpec* spec,
                                      const ExecutionContext& context) const = 0;
  virtual Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                             const AttentionSpec* spec,
                                             const ExecutionContext& context) const = 0;
};

}  // namespace fovea
