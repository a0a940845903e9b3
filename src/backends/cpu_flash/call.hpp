// A problem as a call of the kernels: the rows of the instance table, the parameters, the
// workspace.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "fovea/backend.hpp"
#include "src/backends/cpu_flash/cpu_flash.hpp"
#include "src/backends/cpu_plan.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {

// The kernels there are, best first; `lists`: as they read block lists.
std::array<Instance, 7> cpu_flash_instances(bool lists);

// A receipt that names the instruction set and the padding of the row.
Receipt make_cpu_flash_receipt(const ExecutionPathResult& report, const Instance& instance,
                               const Problem& problem);

// A row claims a kernel that this binary lacks.
Error missing_kernel(const ExecutionPathResult& report);

// Immutable; thread-safe.
class CpuFlashCall {
 public:
  // Null where this binary lacks the row's kernel. `lists` gives the sizes of block lists, without
  // their memory; null for none.
  static std::optional<CpuFlashCall> make(const Problem& problem, const Instance& instance,
                                          const cpu_flash::BlockList* lists = nullptr);

  size_t workspace_bytes(int workers) const noexcept;
  // The tensors are those of the problem; `lists` null for none.
  void run(const AttentionTensors& tensors, const cpu_flash::BlockList* lists, void* workspace,
           Executor& executor) const noexcept;

 private:
  CpuFlashCall(const Problem& problem, const cpu_flash::KernelTable& kernels);
  void set_mask(const TensorView& view, cpu_flash::Mask& mask) const noexcept;

  MaskTensor mask_;
  bool packed_ = false;
  bool has_kv_lengths_ = false;
  bool lse_ = false;
  std::vector<Piece> pieces_;  // run one after the other
  cpu_flash::Params params_;
  const cpu_flash::KernelTable* kernels_;
};

}  // namespace fovea::backends
