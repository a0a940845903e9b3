// A plain float64 attention kernel on the GPU for any AttentionCall: every score, the explicit
// mask, one softmax. Shares no code with the kernels under test.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "src/cuda/attention_call.hpp"

#define CHECK(x)                                                                     \
  do {                                                                               \
    const cudaError_t e_ = (x);                                                      \
    if (e_ != cudaSuccess) {                                                         \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_)); \
      std::fflush(stdout);                                                           \
      _exit(2);                                                                      \
    }                                                                                \
  } while (0)

/// Device memory that starts out as NaN in every format.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  explicit Buffer(std::size_t size) : bytes(size ? size : 16) {
    CHECK(cudaMalloc(&data, bytes));
    CHECK(cudaMemset(data, 0xff, bytes));
  }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer&) = delete;
};

enum class Type { bf16, f16, f32 };
inline int size_of(Type type) { return type == Type::f32 ? 4 : 2; }

namespace oracle {

using fovea::cuda::AttentionCall;
using fovea::cuda::MaskType;
using fovea::cuda::StridedTensor;

/// Sampled rows of one call; results [batch, heads, rows, dim_v] and [batch, heads, rows], where
/// packed calls have batch 1 and rows of all documents.
struct Job {
  AttentionCall call;
  Type type;
  const int* rows;
  int row_count;
  double* scores;  // [batch * heads * row_count, seq_kv]
  double *out, *lse;
};

__device__ inline double element(const void* p, long long at, Type type) {
  if (type == Type::f32) return static_cast<const float*>(p)[at];
  if (type == Type::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[at]);
  return __half2float(static_cast<const __half*>(p)[at]);
}

__global__ void attention(Job j) {
  const AttentionCall& c = j.call;
  const int at = blockIdx.x, r = at % j.row_count, h = at / j.row_count % c.heads;
  int b = at / j.row_count / c.heads, row = j.rows[r], q0 = 0, k0 = 0, m = c.seq_q, n = c.seq_kv;
  if (c.cu_seqlens_q) {
    int document = 0;
    while (row >= c.cu_seqlens_q[document + 1]) document++;
    q0 = c.cu_seqlens_q[document];
    m = c.cu_seqlens_q[document + 1] - q0;
    k0 = c.cu_seqlens_kv[document];
    n = c.cu_seqlens_kv[document + 1] - k0;
    row -= q0;
  } else if (c.kv_lengths) {
    n = c.kv_lengths_wide ? static_cast<int>(static_cast<const long long*>(c.kv_lengths)[b])
                          : static_cast<const int*>(c.kv_lengths)[b];
  }
  double* s = j.scores + static_cast<long long>(at) * c.seq_kv;
  __shared__ double red[256];
  double mx = -INFINITY;
  bool nan = false;
  for (int k = threadIdx.x; k < n; k += blockDim.x) {
    const long long d = static_cast<long long>(row) + n - m;
    bool seen = k >= d - c.window_left && k <= d + c.window_right;
    double bias = 0;
    if (c.mask_type != MaskType::none) {
      const long long e = b * c.mask_batch + h * c.mask_head + row * c.mask_row + k;
      if (c.mask_type == MaskType::byte)
        seen = seen && static_cast<const unsigned char*>(c.mask)[e] != 0;
      else
        bias = element(c.mask, e,
                       c.mask_type == MaskType::f32   ? Type::f32
                       : c.mask_type == MaskType::f16 ? Type::f16
                                                      : Type::bf16);
      seen = seen && bias != -INFINITY;
    }
    double x = 0;
    if (seen)
      for (int e = 0; e < c.head_dim; e++)
        x += element(c.q.data, b * c.q.batch + (q0 + row) * c.q.row + h * c.q.head + e, j.type) *
             element(c.k.data, b * c.k.batch + (k0 + k) * c.k.row + (h / c.group) * c.k.head + e,
                     j.type);
    s[k] = seen ? x * c.scale + bias : -INFINITY;
    if (seen && (x != x || bias != bias || bias == INFINITY)) nan = true;
    mx = fmax(mx, s[k]);
  }
  red[threadIdx.x] = nan ? NAN : mx;
  __syncthreads();
  mx = -INFINITY;
  for (int i = 0; i < blockDim.x; i++) {
    if (red[i] != red[i]) nan = true;
    mx = fmax(mx, red[i]);
  }
  __syncthreads();
  double sum = 0;
  for (int k = threadIdx.x; k < n; k += blockDim.x) sum += mx == -INFINITY ? 0 : exp(s[k] - mx);
  red[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < blockDim.x; i++) sum += red[i];
  if (nan) sum = NAN;
  for (int e = threadIdx.x; e < c.dim_v; e += blockDim.x) {
    double o = 0;
    for (int k = 0; k < n && sum != 0; k++)
      if (s[k] != -INFINITY)
        o += exp(s[k] - mx) *
             element(c.v.data, b * c.v.batch + (k0 + k) * c.v.row + (h / c.group) * c.v.head + e,
                     j.type);
    j.out[static_cast<long long>(at) * c.dim_v + e] = sum == 0 ? 0 : o / sum;
  }
  if (threadIdx.x == 0) j.lse[at] = sum == 0 ? -INFINITY : mx + log(sum);
}

__device__ inline float normal(std::uint64_t index, std::uint64_t seed) {
  std::uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull ^ seed;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  const float u = ((x >> 40) + 1) * (1.f / 16777217.f), w = (x & 0xffffff) * (1.f / 16777216.f);
  return sqrtf(-2.f * logf(u)) * cospif(2.f * w);
}

/// N(0,1) * amplitude into rows of a strided [batch, rows, heads, columns] view.
__global__ void fill_normal(StridedTensor t, Type type, int batch, int rows, int heads, int columns,
                            float amplitude, std::uint64_t seed) {
  const long long total = 1ll * batch * rows * heads * columns;
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < total;
       i += 1ll * gridDim.x * blockDim.x) {
    const float g = amplitude * normal(i, seed);
    const long long c = i % columns, h = i / columns % heads, r = i / columns / heads % rows,
                    b = i / columns / heads / rows;
    const long long at = b * t.batch + r * t.row + h * t.head + c;
    if (type == Type::f32)
      static_cast<float*>(t.data)[at] = g;
    else if (type == Type::bf16)
      static_cast<__nv_bfloat16*>(t.data)[at] = __float2bfloat16(g);
    else
      static_cast<__half*>(t.data)[at] = __float2half(g);
  }
}

}  // namespace oracle
