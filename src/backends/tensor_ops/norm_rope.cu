#include <algorithm>
#include <cmath>

#include "src/backends/tensor_ops/vector.cuh"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::tensor_ops {
namespace {

constexpr int kThreads = 256, kAhead = 4;  // loads of a thread on their way at once

/// The usual case: heads of 8 to 256 elements, a power of two, rotated whole or not at all. A
/// thread keeps 8 columns of several heads of one token in registers; what crosses columns goes
/// through shuffles, and the sum over a token through shared memory.
constexpr int kRowThreads = 128, kRowVectors = 8;

template <class T, class Weight>
__global__ void __launch_bounds__(kRowThreads)
    norm_rope_rows_kernel(const __grid_constant__ NormRopeJob job) {
  __shared__ float sums[kRowThreads / 32];
  const int chunks = job.dim / kVector, heads = kRowThreads / chunks;  // heads side by side
  const int chunk = threadIdx.x % chunks, column = chunk * kVector;
  const int first = blockIdx.z * heads * kRowVectors + threadIdx.x / chunks;
  const int64_t s = blockIdx.x, b = blockIdx.y;
  const T* x = static_cast<const T*>(job.x.data) + b * job.x.batch + s * job.x.seq + column;
  T* out = static_cast<T*>(job.out.data) + b * job.out.batch + s * job.out.seq + column;

  Pack<T, kVector> pack[kRowVectors];
#pragma unroll
  for (int i = 0; i < kRowVectors; i++) {
    const int head = first + i * heads;
    pack[i] = Pack<T, kVector>{};
    if (head < job.heads) pack[i] = load<kVector>(x + head * job.x.head);
  }
  // y = x c + partner n: the sign of the sine is that of the element's place in its pair.
  float c[kVector], n[kVector], w[kVector];
  if (job.rotary) {
    const float* cos = job.cos + b * job.cos_batch + s * job.cos_seq;
    const float* sin = job.sin + b * job.sin_batch + s * job.sin_seq;
    if (job.half) {
      const bool upper = 2 * column >= job.rotary;
      const int pair = upper ? column - job.rotary / 2 : column;
      const Pack<float, kVector> cosines = load<kVector>(cos + pair);
      const Pack<float, kVector> sines = load<kVector>(sin + pair);
#pragma unroll
      for (int e = 0; e < kVector; e++) {
        c[e] = cosines.element[e];
        n[e] = upper ? sines.element[e] : -sines.element[e];
      }
    } else {
      const Pack<float, kVector / 2> cosines = load<kVector / 2>(cos + column / 2);
      const Pack<float, kVector / 2> sines = load<kVector / 2>(sin + column / 2);
#pragma unroll
      for (int e = 0; e < kVector; e++) {
        c[e] = cosines.element[e / 2];
        n[e] = e % 2 ? sines.element[e / 2] : -sines.element[e / 2];
      }
    }
  }
  if (job.weight && !job.whole_token) {
    const Pack<Weight, kVector> weights =
        load<kVector>(static_cast<const Weight*>(job.weight) + column);
#pragma unroll
    for (int e = 0; e < kVector; e++) w[e] = widen(weights.element[e]);
  }
  float scale = 1.f;
  if (job.whole_token) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kRowVectors; i++)
#pragma unroll
      for (int e = 0; e < kVector; e++) {
        const float y = widen(pack[i].element[e]);
        sum = fmaf(y, y, sum);
      }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.f;
    for (int i = 0; i < kRowThreads / 32; i++) sum += sums[i];
    scale = rsqrtf(sum / static_cast<float>(job.heads * job.dim) + job.epsilon);
  }
#pragma unroll
  for (int i = 0; i < kRowVectors; i++) {
    const int head = first + i * heads;
    // The same for the whole warp: heads of a warp are neighbours.
    if (__all_sync(~0u, head >= job.heads)) break;
    float y[kVector];
#pragma unroll
    for (int e = 0; e < kVector; e++) y[e] = widen(pack[i].element[e]);
    if (job.weight) {
      if (job.whole_token) {
        if (head < job.heads) {
          const Pack<Weight, kVector> weights =
              load<kVector>(static_cast<const Weight*>(job.weight) + head * job.dim + column);
#pragma unroll
          for (int e = 0; e < kVector; e++) y[e] *= scale * widen(weights.element[e]);
        }
      } else {
        float sum = 0.f;
#pragma unroll
        for (int e = 0; e < kVector; e++) sum = fmaf(y[e], y[e], sum);
        for (int lanes = 1; lanes < chunks; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        scale = rsqrtf(sum / static_cast<float>(job.dim) + job.epsilon);
#pragma unroll
        for (int e = 0; e < kVector; e++) y[e] *= scale * w[e];
      }
    }
    if (job.rotary) {
      float partner[kVector];
#pragma unroll
      for (int e = 0; e < kVector; e++)
        partner[e] = job.half ? __shfl_xor_sync(~0u, y[e], chunks / 2) : y[e ^ 1];
#pragma unroll
      for (int e = 0; e < kVector; e++) y[e] = fmaf(y[e], c[e], partner[e] * n[e]);
    }
    if (head < job.heads) store(out + head * job.out.head, y);
  }
}

template <class T, class Weight>
bool enqueue_rows(const NormRopeJob& job, CUstream_st* stream) {
  const int chunks = job.dim / kVector;
  const bool power = job.dim % kVector == 0 && chunks <= 32 && (chunks & (chunks - 1)) == 0;
  if (!power || (job.rotary != 0 && job.rotary != job.dim) || (job.half && chunks < 2))
    return false;
  const int heads = kRowThreads / chunks * kRowVectors;  // of one block
  if (job.whole_token && job.heads > heads) return false;
  const dim3 grid(job.seq, job.batch, (job.heads + heads - 1) / heads);
  norm_rope_rows_kernel<T, Weight><<<grid, kRowThreads, 0, stream>>>(job);
  return true;
}

/// Any other sizes. A thread block takes `heads` heads of one token: their elements, times the
/// weight, stay in shared memory between the sum of squares and the rotation, which may need a
/// partner far away.
///   values [heads * dim], scales [heads],
///   squares [kThreads] for a whole token, else [heads * dim / kCount]
template <class T, class Weight, int kCount>
__global__ void __launch_bounds__(kThreads)
    norm_rope_kernel(const __grid_constant__ NormRopeJob job, int heads) {
  extern __shared__ __align__(16) float values[];
  const int first = blockIdx.z * heads, here = min(heads, job.heads - first);
  const int chunks = job.dim / kCount, work = here * chunks;
  float* scales = values + heads * job.dim;
  float* squares = scales + heads;
  const int64_t s = blockIdx.x, b = blockIdx.y;
  const T* x = static_cast<const T*>(job.x.data) + b * job.x.batch + s * job.x.seq;
  T* out = static_cast<T*>(job.out.data) + b * job.out.batch + s * job.out.seq;

  float own_squares = 0.f;
  for (int base = threadIdx.x; base < work; base += kAhead * kThreads) {
    Pack<T, kCount> pack[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int at = base + i * kThreads, head = at / chunks,
                column = (at - head * chunks) * kCount;
      if (at < work) pack[i] = load<kCount>(x + (first + head) * job.x.head + column);
    }
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      const int at = base + i * kThreads, head = at / chunks,
                column = (at - head * chunks) * kCount;
      if (at >= work) break;
      float y[kCount], sum = 0.f;
#pragma unroll
      for (int e = 0; e < kCount; e++) {
        y[e] = widen(pack[i].element[e]);
        sum = fmaf(y[e], y[e], sum);
      }
      if (job.weight) {
        if (job.whole_token)
          own_squares += sum;
        else
          squares[at] = sum;
        const int from = (job.whole_token ? (first + head) * job.dim : 0) + column;
        const Pack<Weight, kCount> w = load<kCount>(static_cast<const Weight*>(job.weight) + from);
#pragma unroll
        for (int e = 0; e < kCount; e++) y[e] *= widen(w.element[e]);
      }
      store(values + at * kCount, y);
    }
  }
  if (job.whole_token) squares[threadIdx.x] = own_squares;
  __syncthreads();
  if (job.weight) {
    if (job.whole_token) {  // the block holds the whole token
      if (threadIdx.x < 32) {
        float sum = 0.f;
        for (int i = threadIdx.x; i < kThreads; i += 32) sum += squares[i];
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        const float scale = rsqrtf(sum / static_cast<float>(here * job.dim) + job.epsilon);
        for (int head = threadIdx.x; head < here; head += 32) scales[head] = scale;
      }
    } else {
      for (int head = threadIdx.x; head < here; head += kThreads) {
        float sum = 0.f;
        for (int i = 0; i < chunks; i++) sum += squares[head * chunks + i];
        scales[head] = rsqrtf(sum / static_cast<float>(job.dim) + job.epsilon);
      }
    }
    __syncthreads();
  }

  const float* cos = job.cos + b * job.cos_batch + s * job.cos_seq;
  const float* sin = job.sin + b * job.sin_batch + s * job.sin_seq;
  const int pairs = job.rotary / 2;
  for (int at = threadIdx.x; at < work; at += kThreads) {
    const int head = at / chunks, column = (at - head * chunks) * kCount;
    const float scale = job.weight ? scales[head] : 1.f;
    const Pack<float, kCount> own = load<kCount>(values + at * kCount);
    float y[kCount];
#pragma unroll
    for (int e = 0; e < kCount; e++) y[e] = own.element[e];
    if (column <
        job.rotary) {  // pieces of kCount lie wholly within R or outside, and within a half
      if (job.half) {
        const bool upper = column >= pairs;
        const int pair = upper ? column - pairs : column;
        const Pack<float, kCount> other =
            load<kCount>(values + head * job.dim + (upper ? pair : pair + pairs));
        const Pack<float, kCount> c = load<kCount>(cos + pair), n = load<kCount>(sin + pair);
#pragma unroll
        for (int e = 0; e < kCount; e++)
          y[e] = fmaf(y[e], c.element[e],
                      upper ? other.element[e] * n.element[e] : -other.element[e] * n.element[e]);
      } else if constexpr (kCount > 1) {
#pragma unroll
        for (int e = 0; e < kCount; e += 2) {
          const float c = cos[(column + e) / 2], n = sin[(column + e) / 2];
          const float even = y[e], odd = y[e + 1];
          y[e] = fmaf(even, c, -odd * n);
          y[e + 1] = fmaf(odd, c, even * n);
        }
      } else {
        const float other = values[head * job.dim + (column ^ 1)];
        const float c = cos[column / 2], n = sin[column / 2];
        y[0] = fmaf(y[0], c, column % 2 ? other * n : -other * n);
      }
    }
#pragma unroll
    for (int e = 0; e < kCount; e++) y[e] *= scale;
    store(out + (first + head) * job.out.head + column, y);
  }
}

template <class T, class Weight, int kCount>
void enqueue(const NormRopeJob& job, CUstream_st* stream) {
  constexpr int kSharedFloats = 12000;  // what every GPU has without asking
  const int most = kSharedFloats / (job.dim + 1 + job.dim / kCount);
  const int heads = job.whole_token ? job.heads : std::min(job.heads, most);
  const dim3 grid(job.seq, job.batch, (job.heads + heads - 1) / heads);
  const int squares = job.whole_token ? kThreads : heads * (job.dim / kCount);
  const std::size_t bytes = sizeof(float) * (heads * (job.dim + 1) + squares);
  norm_rope_kernel<T, Weight, kCount><<<grid, kThreads, bytes, stream>>>(job, heads);
}

/// Angles are read in units of 16 bytes.
bool aligned_angles(const NormRopeJob& job) {
  const auto fits = [](const float* p, std::int64_t batch, std::int64_t seq) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && batch % 4 == 0 && seq % 4 == 0;
  };
  return fits(job.cos, job.cos_batch, job.cos_seq) && fits(job.sin, job.sin_batch, job.sin_seq);
}

}  // namespace

int launch_norm_rope(const NormRopeJob& job, Element x, Element weight, int device,
                     CUstream_st* stream) {
  if (job.batch == 0 || job.seq == 0 || job.heads == 0 || job.dim == 0) return cudaSuccess;
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return guard.error();
  const int bytes = bytes_of(x);
  const int unit = job.half ? 2 * kVector : kVector;  // of the rotated columns
  const bool vector = job.dim % kVector == 0 && job.rotary % unit == 0 &&
                      aligned(job.x, bytes, kVector) && aligned(job.out, bytes, kVector) &&
                      reinterpret_cast<std::uintptr_t>(job.weight) % 16 == 0 && aligned_angles(job);
  with_type(x, [&](auto element) {
    with_type(weight, [&](auto factor) {
      using T = decltype(element);
      using Weight = decltype(factor);
      if (vector && enqueue_rows<T, Weight>(job, stream)) return;
      if (vector)
        enqueue<T, Weight, kVector>(job, stream);
      else
        enqueue<T, Weight, 1>(job, stream);
    });
  });
  return cudaGetLastError();
}

}  // namespace fovea::tensor_ops
