#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/backends/tensor_ops/vector.cuh"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::tensor_ops {
namespace {

constexpr int kThreads = 256, kAhead = 4;  // loads of a thread on their way at once

/// The usual case: heads of 8 to 256 elements, a power of two, rotated whole or not at all. A
/// thread keeps 8 columns of a few heads of one token in registers. Rotation pairs travel unscaled
/// through shuffles, the sum over a token through shared memory.
constexpr int kRowHeads = 4, kMostRowThreads = 256;
enum class Pairs { none, neighbours, halves };

template <class Weight>
__device__ __forceinline__ void load_weights(float (&w)[kVector], const void* from, int first) {
  const auto pack = load<kVector>(static_cast<const Weight*>(from) + first);
#pragma unroll
  for (int e = 0; e < kVector; e++) w[e] = widen(pack.element[e]);
}
__device__ __forceinline__ void load_weights(float (&w)[kVector], const NormRopeJob& job,
                                             Element type, int first) {
  if (type == Element::f32) return load_weights<float>(w, job.weight, first);
  if (type == Element::bf16) return load_weights<__nv_bfloat16>(w, job.weight, first);
  load_weights<__half>(w, job.weight, first);
}

/// The same columns in the lane `distance` away.
template <class T>
__device__ __forceinline__ Pack<T, kVector> partner_of(const Pack<T, kVector>& own, int distance) {
  constexpr int kWords = sizeof(own) / sizeof(std::uint32_t);
  std::uint32_t word[kWords];
  memcpy(word, &own, sizeof own);
#pragma unroll
  for (int i = 0; i < kWords; i++) word[i] = __shfl_xor_sync(~0u, word[i], distance);
  Pack<T, kVector> other;
  memcpy(&other, word, sizeof other);
  return other;
}

template <class T, Pairs kPairs, bool kWholeToken>
__global__ void __launch_bounds__(kMostRowThreads, 3)
    norm_rope_rows_kernel(const __grid_constant__ NormRopeJob job, Element weight) {
  __shared__ float sums[kMostRowThreads / 32];
  const int chunks = job.dim / kVector, side = blockDim.x / chunks;  // heads side by side
  const int chunk = threadIdx.x % chunks, column = chunk * kVector;
  const int first = blockIdx.z * side * kRowHeads + threadIdx.x / chunks;
  const int64_t s = blockIdx.x, b = blockIdx.y;
  const T* x = static_cast<const T*>(job.x.data) + b * job.x.batch + s * job.x.seq + column;
  T* out = static_cast<T*>(job.out.data) + b * job.out.batch + s * job.out.seq + column;

  Pack<T, kVector> pack[kRowHeads];
#pragma unroll
  for (int i = 0; i < kRowHeads; i++) {
    const int head = first + i * side;
    pack[i] = Pack<T, kVector>{};
    if (head < job.heads) pack[i] = load<kVector>(x + head * job.x.head);
  }

  // out = scale * (x own + partner other): own and other hold cosine, signed sine and, if it is the
  // same for all heads, the weight.
  const bool upper = kPairs == Pairs::halves && 2 * column >= job.dim;
  const int across = upper ? column - job.dim / 2 : column + job.dim / 2;  // halves: the partner's
  float own[kVector], other[kVector];
#pragma unroll
  for (int e = 0; e < kVector; e++) own[e] = 1.f, other[e] = 0.f;
  if constexpr (kPairs == Pairs::halves) {
    const int pair = upper ? across : column;
    const auto c = load<kVector>(job.cos + b * job.cos_batch + s * job.cos_seq + pair);
    const auto n = load<kVector>(job.sin + b * job.sin_batch + s * job.sin_seq + pair);
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      own[e] = c.element[e];
      other[e] = upper ? n.element[e] : -n.element[e];
    }
  } else if constexpr (kPairs == Pairs::neighbours) {
    const auto c = load<kVector / 2>(job.cos + b * job.cos_batch + s * job.cos_seq + column / 2);
    const auto n = load<kVector / 2>(job.sin + b * job.sin_batch + s * job.sin_seq + column / 2);
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      own[e] = c.element[e / 2];
      other[e] = e % 2 ? n.element[e / 2] : -n.element[e / 2];
    }
  }
  if (!kWholeToken && job.weight) {
    float w[kVector], v[kVector];
    load_weights(w, job, weight, column);
    if constexpr (kPairs == Pairs::halves) load_weights(v, job, weight, across);
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      own[e] *= w[e];
      other[e] *= kPairs == Pairs::halves ? v[e] : w[e ^ 1];
    }
  }

  const auto squares = [](const Pack<T, kVector>& values) {
    float sum = 0.f;
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      const float y = widen(values.element[e]);
      sum = fmaf(y, y, sum);
    }
    return sum;
  };
  float scale = 1.f;
  if constexpr (kWholeToken) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kRowHeads; i++) sum += squares(pack[i]);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.f;
    for (int i = 0; i < static_cast<int>(blockDim.x / 32); i++) sum += sums[i];
    scale = rsqrtf(sum / static_cast<float>(job.heads * job.dim) + job.epsilon);
  }
#pragma unroll
  for (int i = 0; i < kRowHeads; i++) {
    const int head = first + i * side;
    if (!kWholeToken && job.weight) {
      float sum = squares(pack[i]);
      for (int lanes = 1; lanes < chunks; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      scale = rsqrtf(sum / static_cast<float>(job.dim) + job.epsilon);
    }
    float y[kVector], p[kVector];
#pragma unroll
    for (int e = 0; e < kVector; e++) y[e] = widen(pack[i].element[e]);
    if (kWholeToken && head < job.heads) {
      float w[kVector];
      load_weights(w, job, weight, head * job.dim + column);
#pragma unroll
      for (int e = 0; e < kVector; e++) y[e] *= w[e];
    }
    if constexpr (kPairs != Pairs::halves) {
#pragma unroll
      for (int e = 0; e < kVector; e++) p[e] = y[e ^ 1];
    } else if constexpr (kWholeToken) {
#pragma unroll
      for (int e = 0; e < kVector; e++) p[e] = __shfl_xor_sync(~0u, y[e], chunks / 2);
    } else {
      const Pack<T, kVector> partner = partner_of(pack[i], chunks / 2);
#pragma unroll
      for (int e = 0; e < kVector; e++) p[e] = widen(partner.element[e]);
    }
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      y[e] *= scale * own[e];
      if constexpr (kPairs != Pairs::none) y[e] = fmaf(p[e], scale * other[e], y[e]);
    }
    if (head < job.heads) store(out + head * job.out.head, y);
  }
}

template <class T, Pairs kPairs>
bool enqueue_rows(const NormRopeJob& job, Element weight, CUstream_st* stream) {
  const int chunks = job.dim / kVector;
  const bool power = job.dim % kVector == 0 && chunks <= 32 && (chunks & (chunks - 1)) == 0;
  if (!power || (job.rotary != 0 && job.rotary != job.dim) || (job.half && chunks < 2))
    return false;
  // As many threads as the heads take, in whole warps.
  const int wanted = (job.heads + kRowHeads - 1) / kRowHeads * chunks;
  const int threads = std::min((wanted + 31) / 32 * 32, kMostRowThreads);
  const int heads = threads / chunks * kRowHeads;  // of one block
  const dim3 grid(job.seq, job.batch, (job.heads + heads - 1) / heads);
  if (job.whole_token && job.weight) {
    if (grid.z > 1) return false;
    norm_rope_rows_kernel<T, kPairs, true><<<grid, threads, 0, stream>>>(job, weight);
  } else {
    norm_rope_rows_kernel<T, kPairs, false><<<grid, threads, 0, stream>>>(job, weight);
  }
  return true;
}

template <class T>
bool enqueue_rows(const NormRopeJob& job, Element weight, CUstream_st* stream) {
  if (job.rotary == 0) return enqueue_rows<T, Pairs::none>(job, weight, stream);
  return job.half ? enqueue_rows<T, Pairs::halves>(job, weight, stream)
                  : enqueue_rows<T, Pairs::neighbours>(job, weight, stream);
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
      if (vector && enqueue_rows<T>(job, weight, stream)) return;
      if (vector)
        enqueue<T, Weight, kVector>(job, stream);
      else
        enqueue<T, Weight, 1>(job, stream);
    });
  });
  return cudaGetLastError();
}

}  // namespace fovea::tensor_ops
