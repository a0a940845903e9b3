// Choosing and launching an instance. No CUDA headers: the stream is the runtime's opaque handle.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "src/backends/flash_sm80/instances.hpp"
#include "src/cuda/attention_call.hpp"

struct CUstream_st;

namespace fovea::flash_sm80 {

/// What the launcher knows about a compiled kernel: one function, laid out for each generation.
struct KernelInfo {
  struct Layout {
    std::uint32_t shared_bytes = 0;
    int threads = 0;
  };
  const void* function = nullptr;
  Layout ampere, hopper;
};

/// What every kernel takes.
struct Params {
  cuda::AttentionCall call;
  int tiles = 0;               // query tiles per head
  bool vector_loads = false;   // q, k and v are read in units of 16 bytes
  bool vector_stores = false;  // so is out written
  bool guard_values = false;   // rows see different keys: V behind hidden keys needs care
  bool longest_first = false;  // tiles at the end of the sequence have the most work
};

/// Where a launch failed: 0 none, 1 no such instance, 2 runtime.
struct LaunchStatus {
  int stage = 0;
  int code = 0;  // cudaError_t
};
/// A sentence for a failed launch; static storage.
const char* describe(const LaunchStatus& status);

/// For which generation a plan's kernel is compiled on each device: 1 + Generation, 0 unknown.
/// Filled by the first launch on a device, which also raises the kernel's shared memory there;
/// thread-safe.
struct DeviceCache {
  std::array<std::atomic<int>, 64> generation{};
};

/// Enqueues the call on `stream` of `device` and leaves the current device as it was. Needs no
/// workspace, allocates nothing, waits for nothing; capturable in a CUDA graph.
LaunchStatus launch(const Key& key, const cuda::AttentionCall& call, int device, DeviceCache& cache,
                    CUstream_st* stream);

/// Defined where instances are compiled (instances/*.cu); null function: not one of them.
KernelInfo bf16_kernel(const Key& key);
KernelInfo bf16_any_kernel(const Key& key);
KernelInfo f16_kernel(const Key& key);
KernelInfo f16_any_kernel(const Key& key);
KernelInfo f32_kernel(const Key& key);

}  // namespace fovea::flash_sm80
