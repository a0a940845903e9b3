#include "src/backends/tensor_ops/vector.cuh"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::tensor_ops {
namespace {

constexpr int kThreads = 256, kUnits = 4;  // units per thread, a block's width apart

/// Strides and `dim` count units.
template <class Unit>
__global__ void __launch_bounds__(kThreads) repack_kernel(const __grid_constant__ RepackJob job) {
  const unsigned inner = job.seq_inner ? job.seq : job.heads;
  const unsigned work = static_cast<unsigned>(job.dim) * job.seq * job.heads;
  const int64_t b = blockIdx.y;
  int begin = 0, length = job.seq;
  if (job.cu_seqlens) {
    begin = job.cu_seqlens[b];
    length = min(job.cu_seqlens[b + 1], job.packed_rows) - begin;
    if (begin < 0) length = 0;
  }
  Unit unit[kUnits];
  Unit* to[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; i++) {
    const unsigned at = (blockIdx.x * kUnits + i) * kThreads + threadIdx.x;
    to[i] = nullptr;
    unit[i] = Unit{};
    if (at >= work) continue;
    const unsigned row = at / job.dim, column = at - row * job.dim;
    const unsigned high = row / inner, low = row - high * inner;
    const int64_t s = job.seq_inner ? low : high, h = job.seq_inner ? high : low;
    const bool inside = s < length;
    if (!inside && job.kind == RepackJob::Kind::pack) continue;
    const auto element = [&](const HeadsData& t, bool packed) {
      return static_cast<Unit*>(t.data) + (packed ? (begin + s) * t.seq : b * t.batch + s * t.seq) +
             h * t.head + column;
    };
    to[i] = element(job.to, job.kind == RepackJob::Kind::pack);
    if (inside) unit[i] = *element(job.from, job.kind == RepackJob::Kind::unpack);
  }
#pragma unroll
  for (int i = 0; i < kUnits; i++)
    if (to[i]) *to[i] = unit[i];
}

template <class Unit>
bool enqueue_if(const RepackJob& job, CUstream_st* stream) {
  constexpr int kBytes = sizeof(Unit);
  const int size = job.element_bytes;
  const auto whole = [&](const HeadsData& t) {
    return reinterpret_cast<std::uintptr_t>(t.data) % kBytes == 0 && t.batch * size % kBytes == 0 &&
           t.seq * size % kBytes == 0 && t.head * size % kBytes == 0;
  };
  if (job.dim * size % kBytes != 0 || !whole(job.from) || !whole(job.to)) return false;
  RepackJob units = job;
  units.dim = job.dim * size / kBytes;
  for (HeadsData* t : {&units.from, &units.to}) {
    t->batch = t->batch * size / kBytes;
    t->seq = t->seq * size / kBytes;
    t->head = t->head * size / kBytes;
  }
  const unsigned work = static_cast<unsigned>(units.dim) * units.seq * units.heads;
  const dim3 grid((work + kThreads * kUnits - 1) / (kThreads * kUnits), units.batch);
  repack_kernel<Unit><<<grid, kThreads, 0, stream>>>(units);
  return true;
}

}  // namespace

int launch_repack(const RepackJob& job, int device, CUstream_st* stream) {
  if (job.batch == 0 || job.seq == 0 || job.heads == 0 || job.dim == 0) return cudaSuccess;
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return guard.error();
  enqueue_if<uint4>(job, stream) || enqueue_if<std::uint32_t>(job, stream) ||
      enqueue_if<std::uint16_t>(job, stream) || enqueue_if<std::uint8_t>(job, stream);
  return cudaGetLastError();
}

}  // namespace fovea::tensor_ops
