#include "src/backends/flash_sm90/launch.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "src/backends/flash_sm90/auxiliary.hpp"
#include "src/cuda/launch_attributes.hpp"
#include "src/cuda/tensor_map.hpp"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::flash_sm90 {
namespace {

template <std::size_t... kIndex>
const KernelInfo* find_kernel(const Key& key, std::index_sequence<kIndex...>) {
  static const KernelInfo kernels[] = {kernel_info<kInstances[kIndex]>()...};
  const auto* at = std::find(kInstances.begin(), kInstances.end(), key);
  return at == kInstances.end() ? nullptr : &kernels[at - kInstances.begin()];
}
/// The kernel of a key; null when it is not in this binary.
const KernelInfo* find_kernel(const Key& key, DeviceCache& cache) {
  const KernelInfo* kernel = cache.kernel.load(std::memory_order_acquire);
  if (!kernel) {
    kernel = find_kernel(key, std::make_index_sequence<kInstances.size()>());
    cache.kernel.store(kernel, std::memory_order_release);
  }
  return kernel;
}

int ceil_div(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// Visible keys on one side of the diagonal; far beyond any sequence when unbounded.
int window(std::int64_t side) {
  constexpr std::int64_t kUnbounded = std::int64_t{1} << 30;
  return static_cast<int>(side < 0 ? kUnbounded : std::min(side, kUnbounded));
}

void set_sizes(Params& p, const Problem& problem, const Key& key, int team) {
  p.seq_q = static_cast<int>(problem.seq_q);
  p.seq_kv = static_cast<int>(problem.seq_kv);
  p.batches = static_cast<int>(problem.batch);
  p.heads = make_divisor(static_cast<std::uint32_t>(problem.heads_q));
  p.kv_group = make_divisor(static_cast<std::uint32_t>(problem.heads_q / problem.heads_kv));
  p.q_items = make_divisor(static_cast<std::uint32_t>(ceil_div(problem.seq_q, item_rows(key))));
  p.blocks = ceil_div(problem.seq_kv, key.block_kv);
  p.group_heads = static_cast<int>(problem.heads_q);
  if (!problem.packed) p.items = static_cast<int>(p.q_items.value * p.heads.value) * p.batches;
  if (key.mask != Mask::none || key.source != Source::dense) return;
  p.waves = p.items / team;
  p.rest = p.items % team;
  // Pieces of at least four blocks, at most eight per item; none when that gains nothing, or when
  // the kernel could not count their blocks in 31 bits.
  const int pieces = std::min({p.rest * std::min(p.blocks / 4, 8), team});
  const bool countable =
      std::int64_t{pieces} * p.rest * p.blocks <= std::numeric_limits<int>::max();
  p.pieces = pieces <= p.rest || p.rest * 20 > team * 19 || !countable ? 0 : pieces;
}

void set_panels(Params& p, const Problem& problem) {
  if (!cuda::whole_panels(problem.head_dim)) {
    p.qk_column_step = cuda::kPanelColumns;
    p.qk_panel_step = 0;
  }
  if (!cuda::whole_panels(problem.dim_v)) {
    p.v_column_step = cuda::kPanelColumns;
    p.v_panel_step = 0;
  }
}

void set_masks(Params& p, const Problem& problem, const Key& key, const Arguments& a) {
  p.kv_lengths = a.kv_lengths;
  p.kv_lengths_wide = a.kv_lengths_int64;
  p.cu_seqlens_q = a.cu_seqlens_q;
  p.cu_seqlens_kv = a.cu_seqlens_kv;
  p.window_left = window(problem.window_left);
  p.window_right = window(problem.window_right);
  p.list_counts = a.list_counts;
  p.list_indices = a.list_indices;
  p.list_count_batch = a.list_count_batch;
  p.list_count_head = a.list_count_head;
  p.list_index_batch = a.list_index_batch;
  p.list_index_head = a.list_index_head;
  p.list_index_tile = a.list_index_tile;
  const bool halved = key.source == Source::small || key.source == Source::halves;
  p.list_halves = halved && problem.list_block_kv == 128 ? 1 : 0;
}

struct Maps {
  CUtensorMap q, k, v, out;
};
static_assert(sizeof(Maps) == sizeof(MapCache::maps));
CUresult encode_maps(Maps& maps, const Problem& problem, const Arguments& a,
                     const KernelInfo& info) {
  const CUtensorMapDataType type = problem.precision == Precision::bf16
                                       ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const std::int64_t batch = problem.packed ? 1 : problem.batch;
  const auto encode = [&](CUtensorMap& map, const Tensor& t, std::int64_t columns,
                          std::int64_t rows, std::int64_t heads, int box_rows, int box_panels) {
    // The stride of an axis of one element is never used but has to be valid.
    const auto stride = [](std::int64_t size, std::int64_t value) { return size > 1 ? value : 8; };
    return cuda::encode_tensor_map(&map, t.data, type,
                                   {columns, rows, heads, batch, stride(rows, t.row),
                                    stride(heads, t.head), stride(batch, t.batch)},
                                   box_rows, box_panels);
  };
  CUresult error =
      encode(maps.q, a.q, problem.head_dim, problem.seq_q, problem.heads_q, 64, info.panels);
  if (error == CUDA_SUCCESS)
    error = encode(maps.k, a.k, problem.head_dim, problem.seq_kv, problem.heads_kv, info.load_rows,
                   info.load_panels);
  if (error == CUDA_SUCCESS)
    error = encode(maps.v, a.v, problem.dim_v, problem.seq_kv, problem.heads_kv, info.load_rows,
                   info.load_panels);
  if (problem.out_float)
    maps.out = maps.q;  // unused
  else if (error == CUDA_SUCCESS)
    error = encode(maps.out, a.out, problem.dim_v, problem.seq_q, problem.heads_q, 16, info.panels);
  return error;
}

/// The maps of a call: those of an earlier one with other addresses, or encoded.
CUresult find_maps(Maps& maps, const Problem& problem, const Arguments& a, const KernelInfo& info,
                   MapCache& cache) {
  const auto laid_out_alike = [](const Tensor& x, const Tensor& y) {
    return x.batch == y.batch && x.row == y.row && x.head == y.head;
  };
  if (cache.state.load(std::memory_order_acquire) == MapCache::full && cache.problem == problem &&
      laid_out_alike(cache.q, a.q) && laid_out_alike(cache.k, a.k) &&
      laid_out_alike(cache.v, a.v) && laid_out_alike(cache.out, a.out)) {
    std::memcpy(&maps, cache.maps.data(), sizeof(maps));
    const bool moved =
        cuda::move_tensor_map(&maps.q, a.q.data) == CUDA_SUCCESS &&
        cuda::move_tensor_map(&maps.k, a.k.data) == CUDA_SUCCESS &&
        cuda::move_tensor_map(&maps.v, a.v.data) == CUDA_SUCCESS &&
        (problem.out_float || cuda::move_tensor_map(&maps.out, a.out.data) == CUDA_SUCCESS);
    if (moved) return CUDA_SUCCESS;  // else encoding says why
  }
  const CUresult error = encode_maps(maps, problem, a, info);
  int expected = MapCache::empty;
  if (error == CUDA_SUCCESS &&
      cache.state.compare_exchange_strong(expected, MapCache::filling, std::memory_order_relaxed)) {
    cache.problem = problem;
    cache.q = a.q;
    cache.k = a.k;
    cache.v = a.v;
    cache.out = a.out;
    std::memcpy(cache.maps.data(), &maps, sizeof(maps));
    cache.state.store(MapCache::full, std::memory_order_release);
  }
  return error;
}

/// Multiprocessors of the current device; raises the kernel's shared-memory limit there the first
/// time.
cudaError_t device_multiprocessors(const KernelInfo& info, int device, DeviceCache& cache,
                                   int& count) {
  const auto index = static_cast<std::size_t>(device);
  if (index < cache.multiprocessors.size()) {
    count = cache.multiprocessors[index].load(std::memory_order_acquire);
    if (count > 0) return cudaSuccess;
  }
  cudaError_t error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(info.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(info.shared_bytes));
  if (error == cudaSuccess)  // nothing is kept for the L1 cache
    error = cudaFuncSetAttribute(info.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess && index < cache.multiprocessors.size())
    cache.multiprocessors[index].store(count, std::memory_order_release);
  return error;
}

}  // namespace

const char* describe(const LaunchStatus& status) {
  switch (status.stage) {
    case 0:
      return "no error";
    case 1:
      return "the kernel is not in this binary";
    case 2:
      return "the driver has no tensor maps (CUDA 12 or later is needed)";
    case 3:
      return "the driver refused a tensor map";
    default:
      return cudaGetErrorString(static_cast<cudaError_t>(status.code));
  }
}

LaunchStatus prepare(const Choice& choice, int device, DeviceCache& cache) {
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return {4, guard.error()};
  const KernelInfo* kernel = find_kernel(choice.key, cache);
  if (!kernel) return {1, 0};
  int multiprocessors = 0;
  const cudaError_t error = device_multiprocessors(*kernel, device, cache, multiprocessors);
  return error == cudaSuccess ? LaunchStatus{} : LaunchStatus{4, error};
}

LaunchStatus launch(const Problem& problem, const Choice& choice, const Arguments& arguments,
                    int device, DeviceCache& cache, CUstream_st* stream) {
  if (problem.batch == 0 || problem.seq_q == 0 || problem.heads_q == 0) return {};
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return {4, guard.error()};
  if (problem.seq_kv == 0) {
    const int error = fill_empty(problem, arguments, stream);
    return error ? LaunchStatus{4, error} : LaunchStatus{};
  }
  const Key& key = choice.key;
  const KernelInfo* kernel = find_kernel(key, cache);
  if (!kernel) return {1, 0};
  const KernelInfo& info = *kernel;
  const Schedule s = schedule(key);
  int multiprocessors = 0;
  if (const cudaError_t error = device_multiprocessors(info, device, cache, multiprocessors);
      error != cudaSuccess)
    return {4, error};
  multiprocessors = std::min(multiprocessors, kMaxMultiprocessors);
  if (problem.multiprocessors > 0)
    multiprocessors = std::min(multiprocessors, problem.multiprocessors);
  Maps maps;
  if (const CUresult error = find_maps(maps, problem, arguments, info, cache.maps);
      error != CUDA_SUCCESS)
    return {error == CUDA_ERROR_NOT_FOUND ? 2 : 3, error};

  const WorkspaceLayout layout = workspace_layout(problem, key);
  auto* base = static_cast<std::uint8_t*>(arguments.workspace);
  Params p;
  const int team = multiprocessors / s.cluster;
  set_sizes(p, problem, key, team);
  set_panels(p, problem);
  set_masks(p, problem, key, arguments);
  p.scale = arguments.scale;
  p.scale_log2 = arguments.scale * 1.4426950408889634f;
  p.out = arguments.out.data;
  p.k = arguments.k.data;
  p.k_batch = problem.packed ? 0 : arguments.k.batch;
  p.k_row = arguments.k.row;
  p.k_head = arguments.k.head;
  p.head_dim = problem.head_dim;
  p.out_batch = problem.packed ? 0 : arguments.out.batch;
  p.out_row = arguments.out.row;
  p.out_head = arguments.out.head;
  p.dim_v = static_cast<int>(problem.dim_v);
  p.out_float = problem.out_float;
  p.lse = arguments.lse;
  if (problem.list) {
    p.next_item = reinterpret_cast<int*>(base + layout.next_item);
    if (const cudaError_t error = cudaMemsetAsync(p.next_item, 0, sizeof(int), stream);
        error != cudaSuccess)
      return {4, error};
  }
  p.ready = reinterpret_cast<std::uint64_t*>(base + layout.ready);
  p.partial = reinterpret_cast<float*>(base + layout.partial);
  if (problem.key_bits) {
    auto* bits = reinterpret_cast<std::uint32_t*>(base + layout.key_bits);
    auto* entries = reinterpret_cast<int*>(base + layout.key_entries);
    auto* counts = reinterpret_cast<int*>(base + layout.key_counts);
    p.key_bits = bits;
    p.key_entries = entries;
    p.key_counts = counts;
    p.key_blocks = p.blocks;
    p.key_batch = problem.key_mask_batches > 1 ? static_cast<int>(problem.key_mask_heads) : 0;
    p.key_head = problem.key_mask_heads > 1 ? 1 : 0;
    if (p.key_head && key.mask == Mask::key_bits) p.group_heads = 1;
    const int error =
        pack_key_bits(problem, arguments, key.block_kv, bits, entries, counts, stream);
    if (error) return {4, error};
  }

  cuda::LaunchAttributes attributes(s.cluster);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(team * s.cluster));
  config.blockDim = dim3(static_cast<unsigned>(info.threads));
  config.dynamicSmemBytes = info.shared_bytes;
  config.stream = stream;
  attributes.add_to(config);
  void* parameters[] = {&maps.q, &maps.k, &maps.v, &maps.out, &p};
  const cudaError_t error = cudaLaunchKernelExC(&config, info.function, parameters);
  return error == cudaSuccess ? LaunchStatus{} : LaunchStatus{4, error};
}

}  // namespace fovea::flash_sm90
