// cpu_flash: tiled online-softmax attention on CPUs, from plain parameters. The Backend interface
// is implemented over it in backend.cpp.
#pragma once

#include <cstddef>

#include "fovea/executor.hpp"
#include "src/backends/cpu_flash/params.hpp"
#include "src/simd/cpu_features.hpp"

namespace fovea::cpu_flash {

struct KernelTable;

// Kernels for inputs of this type: built into this binary and runnable where the best instruction
// set is `isa`. Only that very instruction set is considered; null if it has none.
const KernelTable* find_kernels(simd::Isa isa, FloatType dtype) noexcept;

// Scratch memory that run() needs. Depends on sizes, types, masks' broadcasting and `workers`, not
// on values.
size_t workspace_bytes(const Params& params, const KernelTable& kernels, int workers) noexcept;

// Computes out and lse. `workspace` is aligned to 64 bytes and holds workspace_bytes() for
// executor.workers(). Values (lengths, offsets, block lists) must be valid. Results do not depend
// on the number of workers. Thread-safe for distinct workspaces.
void run(const Params& params, const KernelTable& kernels, void* workspace,
         Executor& executor) noexcept;

}  // namespace fovea::cpu_flash
