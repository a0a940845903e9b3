// A plain float64 attention kernel on the GPU, and data generation, for the tests of the Hopper
// kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

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

namespace oracle {

/// One problem as the oracle sees it; strides in elements, hidden keys are never touched.
struct Job {
  const void *q, *k, *v;
  long long q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head;
  int bf16, batch, heads, group, seq_q, seq_kv, head_dim, dim_v;
  double scale;
  const int* lengths;        // [batch] or null
  const std::uint8_t* mask;  // [batch, heads, seq_kv] or null
  long long mask_batch, mask_head;
  const int *cu_q, *cu_kv;     // packed
  int band, left, right;       // -1 unbounded
  const std::uint8_t* blocks;  // block mask [batch, heads, query blocks, key blocks] or null
  int block_q, block_kv;
  long long blocks_batch, blocks_head, blocks_row;
  const int* rows;  // sampled rows
  int row_count;
  double* scores;     // [batch * heads * row_count, seq_kv]
  double *out, *lse;  // [batch, heads, row_count, dim_v], [batch, heads, row_count]
};

__device__ inline double element(const void* p, long long at, int bf16) {
  return bf16 ? static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(p)[at]))
              : static_cast<double>(__half2float(static_cast<const __half*>(p)[at]));
}

/// One thread block per (batch, head, sampled row). Packed: the batch item is found from the row.
__global__ void attention(Job j) {
  const int at = blockIdx.x, r = at % j.row_count, h = at / j.row_count % j.heads;
  int b = at / j.row_count / j.heads;
  int row = j.rows[r], q0 = 0, k0 = 0, m = j.seq_q, n = j.seq_kv, batch = b;
  if (j.cu_q) {
    while (row >= j.cu_q[b + 1]) b++;
    q0 = j.cu_q[b];
    m = j.cu_q[b + 1] - q0;
    k0 = j.cu_kv[b];
    n = j.cu_kv[b + 1] - k0;
    row -= q0;
    batch = 0;
  } else if (j.lengths) {
    n = j.lengths[b];
  }
  const int kh = h / j.group;
  double* s = j.scores + static_cast<long long>(at) * j.seq_kv;
  __shared__ double red[256];
  double mx = -INFINITY;
  bool nan = false;
  for (int c = threadIdx.x; c < n; c += blockDim.x) {
    const int d = row + n - m;
    bool seen = !j.mask || j.mask[b * j.mask_batch + h * j.mask_head + c];
    if (j.blocks)
      seen = seen && j.blocks[b * j.blocks_batch + h * j.blocks_head +
                              row / j.block_q * j.blocks_row + c / j.block_kv];
    if (j.band) seen = seen && (j.left < 0 || c >= d - j.left) && (j.right < 0 || c <= d + j.right);
    double x = 0;
    if (seen)
      for (int e = 0; e < j.head_dim; e++)
        x += element(j.q, batch * j.q_batch + (q0 + row) * j.q_row + h * j.q_head + e, j.bf16) *
             element(j.k, batch * j.k_batch + (k0 + c) * j.k_row + kh * j.k_head + e, j.bf16);
    s[c] = seen ? x * j.scale : -INFINITY;
    if (seen && x != x) nan = true;
    mx = fmax(mx, s[c]);
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
  for (int c = threadIdx.x; c < n; c += blockDim.x) sum += mx == -INFINITY ? 0 : exp(s[c] - mx);
  red[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < blockDim.x; i++) sum += red[i];
  if (nan) sum = NAN;
  for (int e = threadIdx.x; e < j.dim_v; e += blockDim.x) {
    double o = 0;
    for (int c = 0; c < n && sum != 0; c++)
      if (s[c] != -INFINITY)
        o += exp(s[c] - mx) *
             element(j.v, batch * j.v_batch + (k0 + c) * j.v_row + kh * j.v_head + e, j.bf16);
    j.out[static_cast<long long>(at) * j.dim_v + e] = sum == 0 ? 0 : o / sum;
  }
  if (threadIdx.x == 0) j.lse[at] = sum == 0 ? -INFINITY : mx + log(sum);
}

/// `value` in column 0 of rows `from` and later, of these the first eight of every `every`.
__global__ void fill_first_column(std::uint16_t* p, long long s_batch, long long s_row,
                                  long long s_head, int batch, int rows, int heads,
                                  std::uint16_t value, int from, int every) {
  const long long total = 1ll * batch * rows * heads;
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < total;
       i += 1ll * gridDim.x * blockDim.x) {
    const long long h = i % heads, r = i / heads % rows, b = i / heads / rows;
    if (r >= from && r % every < 8) p[b * s_batch + r * s_row + h * s_head] = value;
  }
}

/// N(0,1) * amplitude, growing linearly to (1 + growth) times that in the last row, into a strided
/// [batch, rows, heads, columns] view.
__global__ void fill_normal(void* p, int bf16, long long s_batch, long long s_row, long long s_head,
                            int batch, int rows, int heads, int columns, float amplitude,
                            float growth, std::uint64_t seed) {
  const long long total = 1ll * batch * rows * heads * columns;
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < total;
       i += 1ll * gridDim.x * blockDim.x) {
    std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull ^ seed;
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    const float u = ((x >> 40) + 1) * (1.f / 16777217.f), w = (x & 0xffffff) * (1.f / 16777216.f);
    float g = amplitude * sqrtf(-2.f * logf(u)) * cospif(2.f * w);
    const long long c = i % columns, h = i / columns % heads, r = i / columns / heads % rows,
                    b = i / columns / heads / rows;
    g *= 1.f + growth * static_cast<float>(r) / static_cast<float>(rows);
    const long long at = b * s_batch + r * s_row + h * s_head + c;
    if (bf16)
      static_cast<__nv_bfloat16*>(p)[at] = __float2bfloat16(g);
    else
      static_cast<__half*>(p)[at] = __float2half(g);
  }
}

}  // namespace oracle
