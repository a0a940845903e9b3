// Launching an instance. No CUDA headers: the stream is the runtime's opaque handle.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/backends/flash_sm90/config.hpp"
#include "src/backends/flash_sm90/params.hpp"

struct CUstream_st;

namespace fovea::flash_sm90 {

/// What the launcher knows about a compiled kernel.
struct KernelInfo {
  const void* function = nullptr;
  std::uint32_t shared_bytes = 0;
  int threads = 0;
  int load_rows = 0, load_panels = 0;  // boxes of K and V
  int panels = 0;                      // boxes of Q and O
};

/// Defined where an instance is compiled (instances/*.cu).
template <Key kKey>
KernelInfo kernel_info();

/// Device pointers and element strides of one call. q [batch, seq_q, heads_q, head_dim] and so on
/// by strides, the last axis contiguous; packed tensors have batch stride 0. Bases are 16-byte
/// aligned and strides multiples of 8 elements (out in float32: 4).
struct Tensor {
  void* data = nullptr;
  std::int64_t batch = 0, row = 0, head = 0;
};
struct Arguments {
  Tensor q, k, v, out;
  float* lse = nullptr;  // [batch, heads_q, seq_q], packed [heads_q, total_q]; null: not wanted
  float scale = 0;
  const void* kv_lengths = nullptr;  // [batch] int32 or int64 (Problem::lengths)
  bool kv_lengths_int64 = false;
  const int* cu_seqlens_q = nullptr;  // [documents + 1] (Problem::packed)
  const int* cu_seqlens_kv = nullptr;
  const std::uint8_t* key_mask =
      nullptr;  // bool [batch, heads, seq_kv], unit last stride (Problem::key_bits)
  std::int64_t key_mask_batch = 0, key_mask_head = 0;  // element strides, 0 where broadcast
  const int* list_counts = nullptr;   // Problem::list: [batch, heads, query blocks]
  const int* list_indices = nullptr;  // [batch, heads, query blocks, capacity] ascending key blocks
  std::int64_t list_count_batch = 0, list_count_head = 0;
  std::int64_t list_index_batch = 0, list_index_head = 0, list_index_tile = 0;
  void* workspace = nullptr;  // Choice::workspace_bytes, 256-byte aligned, any contents
};

/// Where a launch failed: 0 none, 1 no such instance, 2 no driver entry point, 3 tensor map, 4
/// runtime.
struct LaunchStatus {
  int stage = 0;
  int code = 0;  // CUresult or cudaError_t
};
/// A sentence for a failed launch; static storage.
const char* describe(const LaunchStatus& status);

/// Tensor maps of a call, kept for calls that differ from it by addresses only. Thread-safe: one
/// thread fills it, others encode maps of their own until it has.
struct MapCache {
  enum State : int { empty, filling, full };
  std::atomic<int> state{empty};
  Problem problem;
  Tensor q, k, v, out;
  alignas(64) std::array<std::byte, 4 * 128> maps{};  // CUtensorMap of q, k, v, out
};

/// What is known of the devices that one choice has run on, and of its kernel. Filled by the first
/// launch; thread-safe.
struct DeviceCache {
  std::array<std::atomic<int>, 64> multiprocessors{};
  std::atomic<const KernelInfo*> kernel{};
  MapCache maps;
};

/// Loads the kernel of the choice on a device and learns what a launch needs of it, so that the
/// first launch does neither.
LaunchStatus prepare(const Choice& choice, int device, DeviceCache& cache);

/// Enqueues the call on `stream` of `device` and leaves the current device as it was. Allocates
/// nothing, waits for nothing; capturable in a CUDA graph.
LaunchStatus launch(const Problem& problem, const Choice& choice, const Arguments& arguments,
                    int device, DeviceCache& cache, CUstream_st* stream);

}  // namespace fovea::flash_sm90
