#include "src/backends/flash_sm80/launch.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "src/cuda_device/device_guard.hpp"

namespace fovea::flash_sm80 {
namespace {

KernelInfo find_kernel(const Key& key) {
  if (key.precision == Precision::f32) return f32_kernel(key);
  const bool plain = key.form == Form::plain;
  if (key.precision == Precision::bf16) return plain ? bf16_kernel(key) : bf16_any_kernel(key);
  return plain ? f16_kernel(key) : f16_any_kernel(key);
}

/// Whether all rows start at multiples of 16 bytes and consist of whole units of 16 bytes.
bool in_units(const cuda::StridedTensor& t, int columns, int element_bytes) {
  const int unit = 16 / element_bytes;
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && columns % unit == 0 &&
         t.batch % unit == 0 && t.row % unit == 0 && t.head % unit == 0;
}

const KernelInfo::Layout& layout(const KernelInfo& info, Generation generation) {
  return generation == Generation::hopper ? info.hopper : info.ampere;
}

/// Which code the current device runs; raises the kernel's shared-memory limit there the first
/// time.
cudaError_t prepare(const KernelInfo& info, int device, DeviceCache& cache,
                    Generation& generation) {
  const auto index = static_cast<std::size_t>(device);
  const bool known = index < cache.generation.size();
  if (known) {
    const int found = cache.generation[index].load(std::memory_order_acquire);
    generation = static_cast<Generation>(found - 1);
    if (found > 0) return cudaSuccess;
  }
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, info.function);
  // PTX is that of Ampere, whatever it is compiled for.
  generation = attributes.ptxVersion >= 90 ? Generation::hopper : Generation::ampere;
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(info.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(layout(info, generation).shared_bytes));
  if (known && error == cudaSuccess)
    cache.generation[index].store(1 + static_cast<int>(generation), std::memory_order_release);
  return error;
}

}  // namespace

const char* describe(const LaunchStatus& status) {
  if (status.stage == 0) return "no error";
  if (status.stage == 1) return "the kernel is not in this binary";
  return cudaGetErrorString(static_cast<cudaError_t>(status.code));
}

LaunchStatus launch(const Key& key, const cuda::AttentionCall& call, int device, DeviceCache& cache,
                    CUstream_st* stream) {
  if (call.batch == 0 || call.heads == 0 || call.max_seq_q == 0) return {};
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return {2, guard.error()};
  const KernelInfo info = find_kernel(key);
  if (!info.function) return {1, 0};
  Generation generation{};
  if (const cudaError_t error = prepare(info, device, cache, generation); error != cudaSuccess)
    return {2, error};
  const KernelInfo::Layout& sizes = layout(info, generation);
  const int rows = block_q(key, generation);
  const int bytes = key.precision == Precision::f32 ? 4 : 2;
  Params p;
  p.call = call;
  p.tiles = (call.max_seq_q + rows - 1) / rows;
  p.vector_loads = in_units(call.q, call.head_dim, bytes) &&
                   in_units(call.k, call.head_dim, bytes) && in_units(call.v, call.dim_v, bytes);
  p.vector_stores = in_units(call.out, call.dim_v, bytes);
  const bool band =
      call.window_left != cuda::kUnboundedWindow || call.window_right != cuda::kUnboundedWindow;
  p.guard_values = band || call.mask_type != cuda::MaskType::none;
  p.longest_first = band;
  void* parameters[] = {&p};
  const auto grid = static_cast<unsigned>(p.tiles) * static_cast<unsigned>(call.heads) *
                    static_cast<unsigned>(call.batch);
  const cudaError_t error =
      cudaLaunchKernel(info.function, dim3(grid), dim3(static_cast<unsigned>(sizes.threads)),
                       parameters, sizes.shared_bytes, stream);
  return error == cudaSuccess ? LaunchStatus{} : LaunchStatus{2, error};
}

}  // namespace fovea::flash_sm80
