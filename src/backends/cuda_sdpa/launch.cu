// Exact attention in the plainest form that is not hopeless: a thread block takes eight query rows
// of one head, walks over the keys in chunks of 128, and keeps everything in float32. Hidden keys
// are left out one by one. Made to be read, and to judge the fast kernels by.
#include "src/backends/cuda_sdpa/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "src/cuda/attention_call.cuh"
#include "src/cuda_device/device_guard.hpp"

namespace fovea::cuda_sdpa {
namespace {

constexpr int kThreads = 128, kKeys = kThreads, kColumns = kMaxDim / kThreads;
// The probability of a hidden key: no other key has this one.
constexpr unsigned kHidden = 0x80000000u;

__device__ float widen(float x) { return x; }
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void narrow(float& to, float x) { to = x; }
__device__ void narrow(__half& to, float x) { to = __float2half_rn(x); }
__device__ void narrow(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

struct Shared {
  float q[kBlockQ][kMaxDim];
  float p[kBlockQ][kKeys];  // scores, then probabilities
  float maximum[kBlockQ], sum[kBlockQ], factor[kBlockQ];
};

/// Scores of one key, this thread's, against all rows.
template <class T>
__device__ void score(Shared& shared, const cuda::AttentionCall& call, const cuda::Item& item,
                      int head, int first_row, int key) {
  float s[kBlockQ] = {};
  if (key < item.kv_length) {
    const T* k = static_cast<const T*>(call.k.data) + item.batch * call.k.batch +
                 (int64_t{item.kv_start} + key) * call.k.row + head / call.group * call.k.head;
    // In two levels: one running sum over hundreds of products would lose digits.
    for (int from = 0; from < call.head_dim; from += 32) {
      float part[kBlockQ] = {};
      for (int d = from; d < min(from + 32, call.head_dim); d++) {
        const float x = widen(k[d]);
#pragma unroll
        for (int r = 0; r < kBlockQ; r++) part[r] = fmaf(shared.q[r][d], x, part[r]);
      }
#pragma unroll
      for (int r = 0; r < kBlockQ; r++) s[r] += part[r];
    }
  }
#pragma unroll
  for (int r = 0; r < kBlockQ; r++) {
    const int row = first_row + r;
    const cuda::KeyRange seen = cuda::key_range(call, item, row);
    float x = -INFINITY;
    if (row < item.q_length && key >= seen.low && key < seen.high) {
      x = s[r] * call.scale;
      if (call.mask_type != cuda::MaskType::none)
        x = cuda::biased(x,
                         cuda::mask_bias(call, cuda::mask_row(call, item.batch, head, row), key));
    }
    shared.p[r][threadIdx.x] = x;
  }
}

/// One warp turns a row of scores into probabilities.
__device__ void softmax(Shared& shared, int r) {
  const int lane = threadIdx.x % 32;
  float m = -INFINITY;
  for (int k = lane; k < kKeys; k += 32) m = fmaxf(m, shared.p[r][k]);
  for (int lanes = 16; lanes > 0; lanes /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, lanes));
  const float before = shared.maximum[r], used = fmaxf(before, m);
  const float reference = used == -INFINITY ? 0.f : used;  // no visible key so far
  float part = 0.f;
  for (int k = lane; k < kKeys; k += 32) {
    const float s = shared.p[r][k];
    const float p = s == -INFINITY ? __uint_as_float(kHidden) : expf(s - reference);
    shared.p[r][k] = p;
    part += p;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) part += __shfl_xor_sync(~0u, part, lanes);
  __syncwarp();
  if (lane == 0) {
    const float factor = expf(before - reference);
    shared.maximum[r] = used;
    shared.factor[r] = factor;
    shared.sum[r] = fmaf(shared.sum[r], factor, part);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cuda_sdpa_kernel(const __grid_constant__ cuda::AttentionCall call, int tiles) {
  __shared__ Shared shared;
  const int line = static_cast<int>(blockIdx.x) / tiles;
  const int first_row = (static_cast<int>(blockIdx.x) - line * tiles) * kBlockQ;
  const int batch = line / call.heads, head = line - batch * call.heads;
  const int thread = static_cast<int>(threadIdx.x);
  const cuda::Item item = cuda::find_item(call, batch);
  if (first_row >= item.q_length) return;
  const int rows = min(kBlockQ, item.q_length - first_row);

  const T* q = static_cast<const T*>(call.q.data) + item.batch * call.q.batch +
               (int64_t{item.q_start} + first_row) * call.q.row + head * call.q.head;
  for (int r = 0; r < kBlockQ; r++)
    for (int d = thread; d < call.head_dim; d += kThreads)
      shared.q[r][d] = r < rows ? widen(q[r * call.q.row + d]) : 0.f;
  if (thread < kBlockQ) {
    shared.maximum[thread] = -INFINITY;
    shared.sum[thread] = 0.f;
  }
  __syncthreads();

  float o[kBlockQ][kColumns] = {};
  const int low = cuda::key_range(call, item, first_row).low;
  const int high = cuda::key_range(call, item, first_row + rows - 1).high;
  for (int first_key = low; first_key < high; first_key += kKeys) {
    score<T>(shared, call, item, head, first_row, first_key + thread);
    __syncthreads();
    for (int r = thread / 32; r < kBlockQ; r += kThreads / 32) softmax(shared, r);
    __syncthreads();
    float part[kBlockQ][kColumns] = {};
    const int keys = min(kKeys, high - first_key);
    const T* v = static_cast<const T*>(call.v.data) + item.batch * call.v.batch +
                 (int64_t{item.kv_start} + first_key) * call.v.row +
                 head / call.group * call.v.head;
    for (int k = 0; k < keys; k++, v += call.v.row)
#pragma unroll
      for (int c = 0; c < kColumns; c++) {
        const int column = thread + c * kThreads;
        if (column >= call.dim_v) break;
        const float x = widen(v[column]);
#pragma unroll
        for (int r = 0; r < kBlockQ; r++)
          if (__float_as_uint(shared.p[r][k]) != kHidden)
            part[r][c] = fmaf(shared.p[r][k], x, part[r][c]);
      }
#pragma unroll
    for (int r = 0; r < kBlockQ; r++)
#pragma unroll
      for (int c = 0; c < kColumns; c++) o[r][c] = fmaf(o[r][c], shared.factor[r], part[r][c]);
    __syncthreads();
  }

  const int64_t origin = item.batch * call.out.batch + head * call.out.head +
                         (int64_t{item.q_start} + first_row) * call.out.row;
#pragma unroll
  for (int r = 0; r < kBlockQ; r++) {
    if (r >= rows) break;
    const float sum = shared.sum[r];
#pragma unroll
    for (int c = 0; c < kColumns; c++) {
      const int column = thread + c * kThreads;
      if (column >= call.dim_v) break;
      const float x = sum == 0.f ? 0.f : o[r][c] / sum;
      const int64_t at = origin + r * call.out.row + column;
      if (call.out_float)
        static_cast<float*>(call.out.data)[at] = x;
      else
        narrow(static_cast<T*>(call.out.data)[at], x);
    }
    if (call.lse && thread == 0) {
      const int64_t row = (int64_t{item.batch} * call.heads + head) * call.seq_q + item.q_start;
      call.lse[row + first_row + r] = sum == 0.f ? -INFINITY : shared.maximum[r] + logf(sum);
    }
  }
}

template <class T>
void enqueue(const cuda::AttentionCall& call, CUstream_st* stream) {
  const int tiles = (call.max_seq_q + kBlockQ - 1) / kBlockQ;
  const auto grid = static_cast<unsigned>(tiles) * static_cast<unsigned>(call.heads) *
                    static_cast<unsigned>(call.batch);
  cuda_sdpa_kernel<T><<<grid, kThreads, 0, stream>>>(call, tiles);
}

}  // namespace

int launch(Type type, const cuda::AttentionCall& call, int device, CUstream_st* stream) {
  if (call.batch == 0 || call.heads == 0 || call.max_seq_q == 0) return cudaSuccess;
  const cuda::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess) return guard.error();
  if (type == Type::f32) enqueue<float>(call, stream);
  if (type == Type::f16) enqueue<__half>(call, stream);
  if (type == Type::bf16) enqueue<__nv_bfloat16>(call, stream);
  return cudaGetLastError();
}

const char* describe(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace fovea::cuda_sdpa
