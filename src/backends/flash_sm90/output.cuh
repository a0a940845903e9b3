// The end of a query tile: O / sum and the LSE to memory, or a partial result to the workspace.
#pragma once

#include "src/backends/flash_sm90/work.cuh"

namespace fovea::flash_sm90 {

/// Barrier of one consumer warpgroup.
FOVEA_DEVICE void warpgroup_sync(int warpgroup) {
  if (warpgroup == 0)
    cuda::named_sync<4>(128);
  else if (warpgroup == 1)
    cuda::named_sync<5>(128);
  else
    cuda::named_sync<6>(128);
}

/// 4 x 4 transpose of 32-bit words inside each quad.
FOVEA_DEVICE void quad_transpose(uint32_t (&x)[4], int quad_lane) {
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, (quad_lane & 1) ? x[j] : x[j + 1], 1);
    if (quad_lane & 1)
      x[j] = got;
    else
      x[j + 1] = got;
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const uint32_t got = __shfl_xor_sync(~0u, (quad_lane & 2) ? x[j] : x[j + 2], 2);
    if (quad_lane & 2)
      x[j] = got;
    else
      x[j + 2] = got;
  }
}

template <Key kKey, int kOutputs>
FOVEA_DEVICE void store_output(const float (&o)[kOutputs], const cuda::Rows& rows, const Params& p,
                               const Task& t, int warpgroup, const CUtensorMap* map,
                               uint32_t shared) {
  using T = Traits<kKey>;
  using Tile = typename T::Tile;
  const int lane = threadIdx.x % 32, quad_lane = lane % 4, warp = threadIdx.x % 128 / 32;
  // Row within the batch item.
  const int first = t.m * T::kTaskRows + (T::kRowPair ? 0 : warpgroup * 64) + warp * 16;
  const int q_length = T::kGrouped ? t.q_length : p.seq_q;
  const int q_start = T::kGrouped ? t.q_start : 0;
  float sum[2], inverse[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] = cuda::quad_sum(rows.sum[h]);
    inverse[h] = cuda::reciprocal_fast(sum[h]);
    if (T::kGrouped && sum[h] == 0.f) inverse[h] = 0.f;  // no visible key
  }
  // After O: the fence between staging and tensor store would wait for these stores too.
  const auto store_lse = [&] {
    if (!p.lse || quad_lane != 0) return;
    const long long head = static_cast<long long>(t.batch) * p.heads.value + t.head;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = first + lane / 4 + 8 * h;
      if (row < q_length)
        p.lse[head * p.seq_q + q_start + row] = rows.maximum[h] * p.scale + __logf(sum[h]);
    }
  };
  const long long origin = t.batch * p.out_batch + t.head * p.out_head;
  if (p.out_float) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = first + lane / 4 + 8 * h;
      float* to = static_cast<float*>(p.out) + origin + (q_start + row) * p.out_row + 2 * quad_lane;
#pragma unroll
      for (int j = 0; j < kOutputs / 4; j++)
        if (row < q_length && 8 * j < p.dim_v)
          *reinterpret_cast<float2*>(to + 8 * j) =
              make_float2(o[4 * j + 2 * h] * inverse[h], o[4 * j + 2 * h + 1] * inverse[h]);
    }
    store_lse();
    return;
  }
  auto packed = [&](int j, int h) {
    return T::Type::pack(o[4 * j + 2 * h] * inverse[h], o[4 * j + 2 * h + 1] * inverse[h]);
  };
  uint16_t* out = static_cast<uint16_t*>(p.out) + origin;
  if constexpr (T::kSchedule.staged_output) {
    // Each warp stages its 16 rows: lane l addresses row l % 8 of the 8 x 8 matrix l / 8, in the
    // order (upper rows, j), (lower, j), (upper, j + 1), (lower, j + 1).
    const uint32_t stage = shared + T::kOutOffset + (warpgroup * 4 + warp) * T::kOutBytes;
    if (lane == 0) cuda::tensor_store_wait_read();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kOutputs / 4; j += 2)
      cuda::stmatrix_x4(stage + j / Tile::kRowChunks * T::kOutPanelBytes +
                            (lane % 16) * Tile::kRowBytes +
                            (((j % Tile::kRowChunks) ^ (lane / 16) ^ (lane % 8)) << 4),
                        packed(j, 0), packed(j, 1), packed(j + 1, 0), packed(j + 1, 1));
    // The tensor store clips at the end of the tensor, not at the end of a document.
    const bool whole =
        !T::kGrouped || cuda::uniform(!p.cu_seqlens_q || first + 16 <= q_length) != 0;
    if (whole) {
      cuda::fence_async_shared();
      __syncwarp();
      if (lane == 0) {
#pragma unroll
        for (int n = 0; n < T::kPanels; n++) {
          if (n * Tile::kColumns < p.dim_v)
            cuda::tensor_store(map, stage + n * T::kOutPanelBytes, n * p.v_column_step,
                               q_start + first, n * p.v_panel_step, t.head, t.batch);
          if (p.v_panel_step) break;
        }
        cuda::tensor_store_commit();
      }
    } else {
      __syncwarp();
      constexpr int kChunks = T::kHeadDim / 8;
      for (int n = lane; n < 16 * kChunks; n += 32) {
        const int row = n / kChunks, chunk = n % kChunks;
        if (first + row < q_length && chunk * 8 < p.dim_v)
          *reinterpret_cast<uint4*>(out + (q_start + first + row) * p.out_row + chunk * 8) =
              cuda::shared_load_16(stage + Tile::offset(row, chunk, 16));
      }
      __syncwarp();
    }
  } else {  // 16-byte stores, a quad writes 64 contiguous bytes
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = first + lane / 4 + 8 * h;
      uint16_t* to = out + (q_start + row) * p.out_row + 8 * quad_lane;
#pragma unroll
      for (int g = 0; g < kOutputs / 16; g++) {
        uint32_t x[4] = {packed(4 * g, h), packed(4 * g + 1, h), packed(4 * g + 2, h),
                         packed(4 * g + 3, h)};
        quad_transpose(x, quad_lane);
        if (row < q_length && 32 * g + 8 * quad_lane < p.dim_v)
          *reinterpret_cast<uint4*>(to + 32 * g) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }
  store_lse();
}

// Partial results are written by the pieces of a tile that do not start at its block 0 and merged,
// in order, by the one that does.

template <Key kKey, int kOutputs>
FOVEA_DEVICE void write_partial(const float (&o)[kOutputs], const cuda::Rows& rows, const Params& p,
                                int block, int warpgroup) {
  using T = Traits<kKey>;
  const long long slot = block * T::kWarpgroups + warpgroup;
  float* to = p.partial + slot * T::kPartialFloats + threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < kOutputs; i++) to[i * 128] = o[i];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    to[(kOutputs + h) * 128] = rows.maximum[h];
    to[(kOutputs + 2 + h) * 128] = rows.sum[h];
  }
  warpgroup_sync(warpgroup);  // the release covers the whole warpgroup's writes
  if (threadIdx.x % 128 == 0) cuda::store_release(p.ready + slot, kPieceReady);
}

/// A partial result on its way into this thread's registers.
struct Partial {
  uint64_t* ready;
  const float* from;
  float maximum[2], sum[2];
};
/// Waits until the piece of another thread block is there and reads its maxima and sums.
template <Key kKey>
FOVEA_DEVICE Partial await_partial(const Params& p, int block, int warpgroup) {
  using T = Traits<kKey>;
  const long long slot = block * T::kWarpgroups + warpgroup;
  Partial part;
  part.ready = p.ready + slot;
  part.from = p.partial + slot * T::kPartialFloats + threadIdx.x % 128;
  if (threadIdx.x % 128 == 0)
    while (cuda::load_acquire(part.ready) != kPieceReady) {
    }
  warpgroup_sync(warpgroup);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    part.maximum[h] = __ldcg(part.from + (T::kOutputs + h) * 128);
    part.sum[h] = __ldcg(part.from + (T::kOutputs + 2 + h) * 128);
  }
  return part;
}
/// Merges it; value(i) is its output i. Clears its flag.
template <Key kKey, int kOutputs, class Value>
FOVEA_DEVICE void merge_partial(float (&o)[kOutputs], cuda::Rows& rows, const Params& p,
                                const Partial& part, int warpgroup, const Value& value) {
  float own[2], other[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float merged = fmaxf(rows.maximum[h], part.maximum[h]);
    const float reference = Traits<kKey>::kGrouped && merged == -INFINITY ? 0.f : merged;
    own[h] = cuda::exp2_fast((rows.maximum[h] - reference) * p.scale_log2);
    other[h] = cuda::exp2_fast((part.maximum[h] - reference) * p.scale_log2);
    rows.maximum[h] = merged;
    rows.sum[h] = rows.sum[h] * own[h] + part.sum[h] * other[h];
  }
#pragma unroll
  for (int i = 0; i < kOutputs; i++)
    o[i] = o[i] * own[(i >> 1) & 1] + value(i) * other[(i >> 1) & 1];
  warpgroup_sync(warpgroup);
  if (threadIdx.x % 128 == 0) *part.ready = 0;
}

}  // namespace fovea::flash_sm90
