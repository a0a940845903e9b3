// Exact attention for float32 inputs by fused multiply-adds. A thread owns 8 query rows and, of
// each key block, 4 keys; of the output 4 columns in every 64. Row sums and O are summed within a
// key block first and then over blocks.
#pragma once

#include "src/backends/flash_sm80/blocks.cuh"
#include "src/backends/flash_sm80/launch.hpp"
#include "src/cuda/mma.cuh"

namespace fovea::flash_sm80 {

template <int kHeadDim>
struct FloatAttention {
  static constexpr int kRows = kFloatRows, kKeys = kFloatKeys, kThreads = kFloatThreads;
  static constexpr int kLine = kHeadDim + 4;  // floats per row: neighbouring rows in other banks
  static constexpr int kPLine = kRows + 4;
  static constexpr int kChunks = kHeadDim / 64;
  // Q, then K and V in turns, then P transposed.
  static constexpr int kKvOffset = kRows * kLine, kPOffset = kKvOffset + kKeys * kLine;
  static constexpr uint32_t kSharedBytes = (kPOffset + kKeys * kPLine) * sizeof(float);
  static_assert(kRows == 64 && kKeys == 64 && kThreads == 128);

  const Params& p;
  const cuda::AttentionCall& call;
  float* const shared;
  const cuda::Item item;
  const int head, tile_row;
  const int tx, ty;  // keys and columns; rows

  float s[8][4];
  float o[kChunks][8][4];
  float maximum[8], sum[8], factor[8];

  FOVEA_DEVICE FloatAttention(const Params& params, float* storage, const cuda::Item& where,
                              int head_index, int row)
      : p(params),
        call(params.call),
        shared(storage),
        item(where),
        head(head_index),
        tile_row(row),
        tx(static_cast<int>(threadIdx.x) % 16),
        ty(static_cast<int>(threadIdx.x) / 16) {
#pragma unroll
    for (int r = 0; r < 8; r++) {
      maximum[r] = -INFINITY;
      sum[r] = 0.f;
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[c][r][e] = 0.f;
    }
  }
  FOVEA_DEVICE int row_of(int r) const { return tile_row + 8 * ty + r; }

  /// 64 rows of a head; what lies outside becomes zero and is not read. Asynchronous.
  FOVEA_DEVICE void load(float* to, const cuda::StridedTensor& tensor, int head_index,
                         int64_t first, int rows, int columns) {
    const float* from = static_cast<const float*>(tensor.data) + item.batch * tensor.batch +
                        head_index * tensor.head + first * tensor.row;
    if (p.vector_loads) {
#pragma unroll 4
      for (int at = static_cast<int>(threadIdx.x); at < 64 * kHeadDim / 4; at += kThreads) {
        const int row = at / (kHeadDim / 4), column = at % (kHeadDim / 4) * 4;
        cuda::copy_async_16(cuda::shared_address(to + row * kLine + column),
                            from + row * tensor.row + column, row < rows && column < columns);
      }
    } else {
#pragma unroll 4
      for (int at = static_cast<int>(threadIdx.x); at < 64 * kHeadDim; at += kThreads) {
        const int row = at / kHeadDim, column = at % kHeadDim;
        cuda::copy_async_4(cuda::shared_address(to + row * kLine + column),
                           from + row * tensor.row + column, row < rows && column < columns);
      }
    }
  }
  FOVEA_DEVICE void load_kv(const cuda::StridedTensor& tensor, int block, int columns) {
    const int first = block * kKeys;
    load(shared + kKvOffset, tensor, head / call.group, int64_t{item.kv_start} + first,
         item.kv_length - first, columns);
  }

  /// Products are summed in runs of 32: one sum over the head dimension would miss the accuracy
  /// that large scores need.
  FOVEA_DEVICE void multiply_qk() {
    const float* q = shared + 8 * ty * kLine;
    const float* k = shared + kKvOffset + tx * kLine;
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
      for (int c = 0; c < 4; c++) s[r][c] = 0.f;
    constexpr int kRun = 32;
    static_assert(kHeadDim % kRun == 0);
#pragma unroll 1
    for (int first = 0; first < kHeadDim; first += kRun) {
      float part[8][4] = {};
#pragma unroll 2
      for (int d = first; d < first + kRun; d += 4) {
        float4 b[4];
#pragma unroll
        for (int c = 0; c < 4; c++) b[c] = *reinterpret_cast<const float4*>(k + 16 * c * kLine + d);
#pragma unroll
        for (int r = 0; r < 8; r++) {
          const float4 a = *reinterpret_cast<const float4*>(q + r * kLine + d);
#pragma unroll
          for (int c = 0; c < 4; c++)
            part[r][c] = fmaf(a.w, b[c].w,
                              fmaf(a.z, b[c].z, fmaf(a.y, b[c].y, fmaf(a.x, b[c].x, part[r][c]))));
        }
      }
#pragma unroll
      for (int r = 0; r < 8; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[r][c] += part[r][c];
    }
  }

  FOVEA_DEVICE void hide(int first_key) {
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const int row = row_of(r);
      const cuda::KeyRange seen = cuda::key_range(call, item, row);
      const bool masked = call.mask_type != cuda::MaskType::none && row < item.q_length;
      const char* line = masked ? cuda::mask_row(call, item.batch, head, row) : nullptr;
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const int key = first_key + tx + 16 * c;
        if (key < seen.low || key >= seen.high)
          s[r][c] = -INFINITY;
        else if (masked)
          s[r][c] = cuda::biased(s[r][c], cuda::mask_bias(call, line, key));
      }
    }
  }

  /// Scores become probabilities in shared memory. A hidden key's is -0, which no other key has.
  FOVEA_DEVICE void softmax() {
#pragma unroll
    for (int r = 0; r < 8; r++) {
      float m = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
#pragma unroll
      for (int lanes = 8; lanes > 0; lanes /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, lanes));
      const float used = fmaxf(maximum[r], m);
      // A row without a visible key so far: against 0, so that its exponents stay -inf.
      const float reference = used == -INFINITY ? 0.f : used;
      factor[r] = expf(maximum[r] - reference);
      maximum[r] = used;
      float part = 0.f;
#pragma unroll
      for (int c = 0; c < 4; c++) {
        s[r][c] = s[r][c] == -INFINITY ? -0.f : expf(s[r][c] - reference);
        part += s[r][c];
      }
#pragma unroll
      for (int lanes = 8; lanes > 0; lanes /= 2) part += __shfl_xor_sync(~0u, part, lanes);
      sum[r] = fmaf(sum[r], factor[r], part);
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
      float* to = shared + kPOffset + (tx + 16 * c) * kPLine + 8 * ty;
      *reinterpret_cast<float4*>(to) = make_float4(s[0][c], s[1][c], s[2][c], s[3][c]);
      *reinterpret_cast<float4*>(to + 4) = make_float4(s[4][c], s[5][c], s[6][c], s[7][c]);
    }
  }

  /// kSelect: hidden keys are left out one by one, whatever their values are.
  template <bool kSelect>
  FOVEA_DEVICE void multiply_pv() {
    const float* probability = shared + kPOffset + 8 * ty;
    const float* v = shared + kKvOffset + 4 * tx;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk++) {
      float part[8][4] = {};
#pragma unroll 4
      for (int key = 0; key < kKeys; key++) {
        const float4 b = *reinterpret_cast<const float4*>(v + key * kLine + 64 * chunk);
        const float4 low = *reinterpret_cast<const float4*>(probability + key * kPLine);
        const float4 high = *reinterpret_cast<const float4*>(probability + key * kPLine + 4);
        const float a[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < 8; r++) {
          if (kSelect && __float_as_uint(a[r]) == 0x80000000u) continue;
          part[r][0] = fmaf(a[r], b.x, part[r][0]);
          part[r][1] = fmaf(a[r], b.y, part[r][1]);
          part[r][2] = fmaf(a[r], b.z, part[r][2]);
          part[r][3] = fmaf(a[r], b.w, part[r][3]);
        }
      }
#pragma unroll
      for (int r = 0; r < 8; r++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[chunk][r][e] = fmaf(o[chunk][r][e], factor[r], part[r][e]);
    }
  }
  FOVEA_DEVICE bool holds_non_finite() const {
    bool found = false;
    for (int at = static_cast<int>(threadIdx.x); at < kKeys * kHeadDim; at += kThreads)
      found |= !isfinite(shared[kKvOffset + at / kHeadDim * kLine + at % kHeadDim]);
    return found;
  }

  FOVEA_DEVICE void run() {
    const Blocks blocks = find_blocks<kRows, kKeys>(call, item, tile_row);
    if (blocks.count > 0) {
      load(shared, call.q, head, int64_t{item.q_start} + tile_row, item.q_length - tile_row,
           call.head_dim);
      load_kv(call.k, blocks.at(0), call.head_dim);
    }
#pragma unroll 1
    for (int i = 0; i < blocks.count; i++) {
      const int block = blocks.at(i);
      cuda::copy_async_wait();
      __syncthreads();
      multiply_qk();
#pragma unroll
      for (int r = 0; r < 8; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[r][c] *= call.scale;
      if (i < blocks.partials) hide(block * kKeys);
      __syncthreads();  // everyone is done with K
      load_kv(call.v, block, call.dim_v);
      softmax();
      cuda::copy_async_wait();
      __syncthreads();
      bool select = false;
      if (i < blocks.partials && p.guard_values) select = __syncthreads_or(holds_non_finite());
      if (select)
        multiply_pv<true>();
      else
        multiply_pv<false>();
      __syncthreads();  // everyone is done with V and P
      if (i + 1 < blocks.count) load_kv(call.k, blocks.at(i + 1), call.head_dim);
    }
    store();
  }

  FOVEA_DEVICE void store() {
    float* out =
        static_cast<float*>(call.out.data) + item.batch * call.out.batch + head * call.out.head;
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const int row = row_of(r);
      if (row >= item.q_length) continue;
      if (call.lse && tx == 0) {
        const int64_t line = int64_t{item.batch} * call.heads + head;
        call.lse[line * call.seq_q + item.q_start + row] =
            sum[r] == 0.f ? -INFINITY : maximum[r] + logf(sum[r]);
      }
      float* to = out + (int64_t{item.q_start} + row) * call.out.row;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk++) {
        const int column = 64 * chunk + 4 * tx;
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = sum[r] == 0.f ? 0.f : o[chunk][r][e] / sum[r];
        if (p.vector_stores && column < call.dim_v) {
          *reinterpret_cast<float4*>(to + column) = make_float4(x[0], x[1], x[2], x[3]);
        } else {
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (column + e < call.dim_v) to[column + e] = x[e];
        }
      }
    }
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(kFloatThreads, kHeadDim > 128 ? 1 : 2)
    flash_sm80_float_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) float float_storage[];
  const int line = static_cast<int>(blockIdx.x) / p.tiles;
  int tile = static_cast<int>(blockIdx.x) - line * p.tiles;
  if (p.longest_first) tile = p.tiles - 1 - tile;
  const int batch = line / p.call.heads, head = line - batch * p.call.heads;
  const cuda::Item item = cuda::find_item(p.call, batch);
  if (tile * kFloatRows >= item.q_length) return;
  FloatAttention<kHeadDim>(p, float_storage, item, head, tile * kFloatRows).run();
}

template <int kHeadDim>
KernelInfo float_kernel_info() {
  const KernelInfo::Layout sizes{FloatAttention<kHeadDim>::kSharedBytes, kFloatThreads};
  return {reinterpret_cast<const void*>(&flash_sm80_float_kernel<kHeadDim>), sizes, sizes};
}

}  // namespace fovea::flash_sm80
