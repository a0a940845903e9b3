#include <cmath>

#include "src/backends/tensor_ops/vector.cuh"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::tensor_ops {
namespace {

constexpr int kThreads = 256;

/// A thread merges kCount columns of one row. kParts: how many parts, all on their way at once; 0:
/// as many as the job says, one after the other. Every thread of a row computes its weights again:
/// they come from the first-level cache.
template <class In, class Out, int kCount, int kParts>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeJob job) {
  constexpr int kKept = kParts ? kParts : 1;
  const unsigned chunks = job.dim / kCount, inner = job.seq_inner ? job.seq : job.heads;
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= chunks * job.seq * job.heads) return;
  const unsigned row = at / chunks, column = (at - row * chunks) * kCount;
  const unsigned high = row / inner, low = row - high * inner;
  const int64_t s = job.seq_inner ? low : high, h = job.seq_inner ? high : low, b = blockIdx.y;
  const auto offset = [&](const HeadsData& t) { return b * t.batch + s * t.seq + h * t.head; };
  const auto lse_of = [&](int i) {
    return static_cast<const float*>(job.lse[i].data)[offset(job.lse[i])];
  };
  const auto part = [&](int i) {
    return load<kCount>(static_cast<const In*>(job.out[i].data) + offset(job.out[i]) + column);
  };

  Pack<In, kCount> pack[kKept];
  float lse[kKept], largest = -INFINITY;
  if constexpr (kParts != 0) {
#pragma unroll
    for (int i = 0; i < kParts; i++) pack[i] = part(i);
#pragma unroll
    for (int i = 0; i < kParts; i++) lse[i] = lse_of(i);
#pragma unroll
    for (int i = 0; i < kParts; i++) largest = fmaxf(largest, lse[i]);
  } else {
    for (int i = 0; i < job.parts; i++) largest = fmaxf(largest, lse_of(i));
  }
  const float reference = largest == -INFINITY ? 0.f : largest;
  float sum = 0.f, x[kCount] = {};
  const auto add = [&](const Pack<In, kCount>& values, float its_lse) {
    const bool empty = its_lse == -INFINITY;  // its values may be anything
    const float w = expf(its_lse - reference);
    sum += w;
#pragma unroll
    for (int e = 0; e < kCount; e++) x[e] = fmaf(w, empty ? 0.f : widen(values.element[e]), x[e]);
  };
  if constexpr (kParts != 0) {
#pragma unroll
    for (int i = 0; i < kParts; i++) add(pack[i], lse[i]);
  } else {
    for (int i = 0; i < job.parts; i++) add(part(i), lse_of(i));
  }
  const float inverse = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
  for (int e = 0; e < kCount; e++) x[e] *= inverse;
  store(static_cast<Out*>(job.merged.data) + offset(job.merged) + column, x);
  if (column == 0)
    static_cast<float*>(job.merged_lse.data)[offset(job.merged_lse)] =
        sum == 0.f ? -INFINITY : largest + logf(sum);
}

template <class In, class Out, int kCount, int kParts>
void enqueue(const MergeJob& job, CUstream_st* stream) {
  const unsigned work = static_cast<unsigned>(job.dim / kCount) * job.seq * job.heads;
  const dim3 grid((work + kThreads - 1) / kThreads, job.batch);
  merge_kernel<In, Out, kCount, kParts><<<grid, kThreads, 0, stream>>>(job);
}

}  // namespace

int launch_merge(const MergeJob& job, Element in, Element out, int device, CUstream_st* stream) {
  if (job.batch == 0 || job.seq == 0 || job.heads == 0 || job.dim == 0) return cudaSuccess;
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return guard.error();
  bool vector = job.dim % kVector == 0 && aligned(job.merged, bytes_of(out), kVector);
  for (int i = 0; i < job.parts; i++) vector &= aligned(job.out[i], bytes_of(in), kVector);
  with_type(in, [&](auto from) {
    with_type(out, [&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      if (!vector) return enqueue<In, Out, 1, 0>(job, stream);
      if (job.parts == 2) return enqueue<In, Out, kVector, 2>(job, stream);
      if (job.parts == 3) return enqueue<In, Out, kVector, 3>(job, stream);
      if (job.parts == 4) return enqueue<In, Out, kVector, 4>(job, stream);
      enqueue<In, Out, kVector, 0>(job, stream);
    });
  });
  return cudaGetLastError();
}

const char* describe(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace fovea::tensor_ops
