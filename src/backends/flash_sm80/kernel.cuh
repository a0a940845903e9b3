// Exact attention with mma.sync for the 16-bit types; README.md describes the schedule.
#pragma once

#include "src/backends/flash_sm80/blocks.cuh"
#include "src/backends/flash_sm80/launch.hpp"
#include "src/backends/flash_sm80/tile.cuh"

namespace fovea::flash_sm80 {

template <class ElementType, int kDim, Form kCallForm, Schedule kPlan>
struct Traits {
  using Type = ElementType;
  using Tile = cuda::MmaTile<kDim>;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kAny = kCallForm == Form::any;
  static constexpr int kRowTiles = kPlan.row_tiles, kBlockKv = kPlan.block_kv;
  static constexpr int kStages = kPlan.stages, kBlocks = kPlan.blocks;
  static constexpr bool kQInRegisters = kPlan.q_in_registers;
  static constexpr int kWarpRows = 16 * kRowTiles, kThreads = 32 * kPlan.warps;
  static constexpr int kBlockQ = kWarpRows * kPlan.warps;
  static constexpr uint32_t kQBytes = kBlockQ * Tile::kRowBytes;
  static constexpr uint32_t kKvBytes = kBlockKv * Tile::kRowBytes;
  static constexpr uint32_t kKOffset = kQBytes, kVOffset = kQBytes + kStages * kKvBytes;
  static constexpr uint32_t kSharedBytes = kQBytes + 2 * kStages * kKvBytes;
};

template <class T>
struct Attention {
  using Tile = typename T::Tile;
  using Type = typename T::Type;
  static constexpr float kLog2e = 1.4426950408889634f;

  const Params& p;
  const cuda::AttentionCall& call;
  const uint32_t shared;
  const cuda::Item item;
  const int head, tile_row;  // first row of the tile in its item
  const int warp, lane;
  const float unit;  // from a score to the exponent of two

  float s[T::kRowTiles][T::kBlockKv / 8][4];
  float o[T::kRowTiles][T::kHeadDim / 8][4];
  uint32_t q[T::kQInRegisters ? T::kHeadDim / 16 : 1][T::kRowTiles][4];
  float maximum[T::kRowTiles][2], sum[T::kRowTiles][2];

  FOVEA_DEVICE Attention(const Params& params, uint32_t base, const cuda::Item& where,
                         int head_index, int row)
      : p(params),
        call(params.call),
        shared(base),
        item(where),
        head(head_index),
        tile_row(row),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        unit(T::kAny ? kLog2e : params.call.scale * kLog2e) {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++) {
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[t][n][e] = 0.f;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        maximum[t][h] = -INFINITY;
        sum[t][h] = 0.f;
      }
    }
  }

  /// Row of this thread within the item.
  FOVEA_DEVICE int row_of(int t, int h) const {
    return tile_row + warp * T::kWarpRows + 16 * t + 8 * h + lane / 4;
  }

  // Loads
  // ---------------------------------------------------------------------------------------------

  FOVEA_DEVICE uint32_t k_tile(int stage) const {
    return shared + T::kKOffset + stage * T::kKvBytes;
  }
  FOVEA_DEVICE uint32_t v_tile(int stage) const {
    return shared + T::kVOffset + stage * T::kKvBytes;
  }
  FOVEA_DEVICE void load_q() {
    const int64_t first = item.q_start + tile_row;
    load_tile<T, T::kBlockQ>(shared, call.q, item.batch, head, first, item.q_length - tile_row,
                             call.head_dim, p.vector_loads);
  }
  FOVEA_DEVICE void load_k(int block, int stage) {
    const int first = block * T::kBlockKv;
    load_tile<T, T::kBlockKv>(k_tile(stage), call.k, item.batch, head / call.group,
                              int64_t{item.kv_start} + first, item.kv_length - first, call.head_dim,
                              p.vector_loads);
  }
  FOVEA_DEVICE void load_v(int block, int stage) {
    const int first = block * T::kBlockKv;
    load_tile<T, T::kBlockKv>(v_tile(stage), call.v, item.batch, head / call.group,
                              int64_t{item.kv_start} + first, item.kv_length - first, call.dim_v,
                              p.vector_loads);
  }

  // Products
  // ------------------------------------------------------------------------------------------

  FOVEA_DEVICE uint32_t q_address() const {
    return cuda::opaque(shared + Tile::offset(warp * T::kWarpRows + lane % 16, lane / 16));
  }
  FOVEA_DEVICE void read_q(uint32_t (&a)[T::kRowTiles][4], uint32_t from, int step) const {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
      cuda::ldmatrix(a[t], Tile::advance(from, step) + 16 * t * Tile::kRowBytes);
  }
  FOVEA_DEVICE void keep_q() {
    const uint32_t from = q_address();
#pragma unroll
    for (int step = 0; step < T::kHeadDim / 16; step++) read_q(q[step], from, step);
  }
  FOVEA_DEVICE void multiply_qk(uint32_t k) {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int n = 0; n < T::kBlockKv / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[t][n][e] = 0.f;
    const uint32_t from = T::kQInRegisters ? 0 : q_address();
    const uint32_t keys = cuda::opaque(k + Tile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2));
#pragma unroll
    for (int step = 0; step < T::kHeadDim / 16; step++) {
      uint32_t(&a)[T::kRowTiles][4] = q[T::kQInRegisters ? step : 0];
      if constexpr (!T::kQInRegisters) read_q(a, from, step);
#pragma unroll
      for (int n = 0; n < T::kBlockKv / 16; n++) {
        uint32_t b[4];
        cuda::ldmatrix(b, Tile::advance(keys, step) + 16 * n * Tile::kRowBytes);
#pragma unroll
        for (int t = 0; t < T::kRowTiles; t++) {
          cuda::mma<Type>(s[t][2 * n], a[t], b[0], b[1]);
          cuda::mma<Type>(s[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }
  FOVEA_DEVICE void multiply_pv(uint32_t v) {
    const uint32_t values = cuda::opaque(v + Tile::offset(lane % 16, lane / 16));
#pragma unroll
    for (int step = 0; step < T::kBlockKv / 16; step++) {
      uint32_t a[T::kRowTiles][4];
#pragma unroll
      for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          a[t][i] = Type::pack(s[t][2 * step + i / 2][2 * (i % 2)],
                               s[t][2 * step + i / 2][2 * (i % 2) + 1]);
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 16; n++) {
        uint32_t b[4];
        cuda::ldmatrix_transposed(b, Tile::advance(values, n) + 16 * step * Tile::kRowBytes);
#pragma unroll
        for (int t = 0; t < T::kRowTiles; t++) {
          cuda::mma<Type>(o[t][2 * n], a[t], b[0], b[1]);
          cuda::mma<Type>(o[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  // Softmax
  // -------------------------------------------------------------------------------------------

  /// Scores become probabilities. The outputs are rescaled only when a maximum of the warp grew by
  /// more than 2^8: the one in use may be stale by that factor, which is exact in float32 and in
  /// the exponent range of either 16-bit type.
  FOVEA_DEVICE void softmax() {
    float block[T::kRowTiles][2];
    bool grew = false;
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float m = fmaxf(s[t][0][2 * h], s[t][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < T::kBlockKv / 8; n++)
          m = fmaxf(m, fmaxf(s[t][n][2 * h], s[t][n][2 * h + 1]));
        block[t][h] = cuda::quad_max(m);
        // -inf - -inf is NaN and counts as no growth.
        grew |= (block[t][h] - maximum[t][h]) * unit > 8.f;
      }
    if (__any_sync(~0u, grew)) {
#pragma unroll
      for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float used = fmaxf(maximum[t][h], block[t][h]);
          const float factor =
              used == -INFINITY ? 1.f : cuda::exp2_fast((maximum[t][h] - used) * unit);
          maximum[t][h] = used;
          sum[t][h] *= factor;
#pragma unroll
          for (int n = 0; n < T::kHeadDim / 8; n++) {
            o[t][n][2 * h] *= factor;
            o[t][n][2 * h + 1] *= factor;
          }
        }
    }
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        // A row without a visible key so far: against 0, so that its exponents stay -inf.
        const float reference = maximum[t][h] == -INFINITY ? 0.f : maximum[t][h];
        const float scaled = reference * unit;
        float part = 0.f;
#pragma unroll
        for (int n = 0; n < T::kBlockKv / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& x = s[t][n][2 * h + e];
            // The difference first where biases may reach the edge of float32.
            x = cuda::exp2_fast(T::kAny ? (x - reference) * unit : fmaf(x, unit, -scaled));
            part += x;
          }
        sum[t][h] += part;
      }
  }

  // Partial tiles
  // -------------------------------------------------------------------------------------

  FOVEA_DEVICE void scale_scores() {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int n = 0; n < T::kBlockKv / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[t][n][e] *= call.scale;
  }
  template <cuda::MaskType kMask>
  FOVEA_DEVICE void add_mask(int first_key) {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = row_of(t, h);
        const bool inside = row < item.q_length;
        const char* line = cuda::mask_row(call, item.batch, head, inside ? row : 0);
#pragma unroll
        for (int n = 0; n < T::kBlockKv / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int key = first_key + 8 * n + 2 * (lane % 4) + e;
            float& x = s[t][n][2 * h + e];
            if (inside && key < item.kv_length)
              x = cuda::biased(x, cuda::mask_bias<kMask>(line, key));
          }
      }
  }
  FOVEA_DEVICE void hide(int first_key) {
    if constexpr (T::kAny) {
      if (call.mask_type == cuda::MaskType::byte) add_mask<cuda::MaskType::byte>(first_key);
      if (call.mask_type == cuda::MaskType::f32) add_mask<cuda::MaskType::f32>(first_key);
      if (call.mask_type == cuda::MaskType::f16) add_mask<cuda::MaskType::f16>(first_key);
      if (call.mask_type == cuda::MaskType::bf16) add_mask<cuda::MaskType::bf16>(first_key);
    }
    const int column = first_key + 2 * (lane % 4);
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const cuda::KeyRange seen = cuda::key_range(call, item, row_of(t, h));
        const int low = seen.low - column, high = seen.high - column;
#pragma unroll
        for (int n = 0; n < T::kBlockKv / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (8 * n + e < low || 8 * n + e >= high) s[t][n][2 * h + e] = -INFINITY;
      }
  }
  /// Whether a row sees a key, from the call alone.
  FOVEA_DEVICE bool sees(int row, int key) const {
    const cuda::KeyRange seen = cuda::key_range(call, item, row);
    if (row >= item.q_length || key < seen.low || key >= seen.high) return false;
    if constexpr (T::kAny) {
      if (call.mask_type != cuda::MaskType::none)
        return cuda::mask_bias(call, cuda::mask_row(call, item.batch, head, row), key) != -INFINITY;
    }
    return true;
  }
  /// Makes the V tile of a partial block safe for P.V: a hidden key has probability 0, but 0 * NaN
  /// is NaN. Non-finite values go to exactly the rows that see their key (any positive probability
  /// times such a value is that value), then leave the tile.
  FOVEA_DEVICE void guard(uint32_t v, int first_key) {
    if (!p.guard_values) return;
    uint32_t found = 0;
    for (uint32_t at = threadIdx.x * 16; at < T::kKvBytes; at += T::kThreads * 16) {
      const uint4 x = cuda::shared_load_16(v + at);
      found |= cuda::non_finite_halves<Type>(x.x) | cuda::non_finite_halves<Type>(x.y) |
               cuda::non_finite_halves<Type>(x.z) | cuda::non_finite_halves<Type>(x.w);
    }
    if (!__syncthreads_or(found != 0)) return;
#pragma unroll 1
    for (int key = 0; key < T::kBlockKv; key++) {
      bool visible[T::kRowTiles][2];
#pragma unroll
      for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) visible[t][h] = sees(row_of(t, h), first_key + key);
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 8; n++) {
        const uint32_t pair = cuda::shared_load_4(v + Tile::offset(key, n) + 4 * (lane % 4));
        if (!cuda::non_finite_halves<Type>(pair)) continue;
        const uint32_t bad = pair & ~cuda::finite_halves<Type>(pair);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float x = Type::widen(e ? bad >> 16 : bad & 0xffff);
#pragma unroll
          for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
            for (int h = 0; h < 2; h++)
              if (visible[t][h]) o[t][n][2 * h + e] += x;
        }
      }
    }
    __syncthreads();
    for (uint32_t at = threadIdx.x * 16; at < T::kKvBytes; at += T::kThreads * 16) {
      const uint4 x = cuda::shared_load_16(v + at);
      cuda::shared_store_16(v + at,
                            {cuda::finite_halves<Type>(x.x), cuda::finite_halves<Type>(x.y),
                             cuda::finite_halves<Type>(x.z), cuda::finite_halves<Type>(x.w)});
    }
    __syncthreads();
  }

  // The loop over key blocks
  // --------------------------------------------------------------------------

  /// One buffer each: V arrives beside Q.K and softmax, the next K beside P.V.
  template <bool kPartial>
  FOVEA_DEVICE void step(const Blocks& blocks, int i) {
    const int block = blocks.at(i), stage = T::kStages > 1 ? i % T::kStages : 0;
    cuda::copy_async_wait();
    __syncthreads();  // K has arrived; everyone is done with the block before
    if constexpr (T::kStages == 1) {
      load_v(block, 0);
    } else if (i + 1 < blocks.count) {
      load_k(blocks.at(i + 1), (i + 1) % T::kStages);
      load_v(blocks.at(i + 1), (i + 1) % T::kStages);
    }
    multiply_qk(k_tile(stage));
    if constexpr (T::kAny) scale_scores();
    if constexpr (kPartial) hide(block * T::kBlockKv);
    softmax();
    if constexpr (T::kStages == 1) {
      cuda::copy_async_wait();
      __syncthreads();  // V has arrived; everyone is done with K
      if (i + 1 < blocks.count) load_k(blocks.at(i + 1), 0);
    }
    if constexpr (kPartial) guard(v_tile(stage), block * T::kBlockKv);
    multiply_pv(v_tile(stage));
  }

  FOVEA_DEVICE void run() {
    const Blocks blocks = find_blocks<T::kBlockQ, T::kBlockKv>(call, item, tile_row);
    if (blocks.count > 0) {
      load_q();
      load_k(blocks.at(0), 0);
      if constexpr (T::kStages > 1) load_v(blocks.at(0), 0);
      if constexpr (T::kQInRegisters) {
        cuda::copy_async_wait();
        __syncthreads();
        keep_q();
      }
    }
    int i = 0;
#pragma unroll 1
    for (; i < blocks.partials; i++) step<true>(blocks, i);
#pragma unroll 1
    for (; i < blocks.count; i++) step<false>(blocks, i);
    store();
  }

  // The end of a tile
  // ---------------------------------------------------------------------------------

  FOVEA_DEVICE void store() {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float total = cuda::quad_sum(sum[t][h]);
        const float inverse = total == 0.f ? 0.f : 1.f / total;  // 0: no visible key
        const int row = row_of(t, h);
        if (call.lse && lane % 4 == 0 && row < item.q_length) {
          const int64_t line = int64_t{item.batch} * call.heads + head;
          const float natural = T::kAny ? 1.f : call.scale;
          call.lse[line * call.seq_q + item.q_start + row] =
              total == 0.f ? -INFINITY : fmaf(maximum[t][h], natural, logf(total));
        }
#pragma unroll
        for (int n = 0; n < T::kHeadDim / 8; n++) {
          o[t][n][2 * h] *= inverse;
          o[t][n][2 * h + 1] *= inverse;
        }
      }
    const int64_t origin = item.batch * call.out.batch + head * call.out.head +
                           (int64_t{item.q_start} + tile_row) * call.out.row;
    if (call.out_float || !p.vector_stores) {
      store_elements(origin);
      return;
    }
    // Through this warp's own rows of Q, which it alone reads.
    __syncwarp();
    const int first = warp * T::kWarpRows;
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < T::kHeadDim / 8; n++)
          cuda::shared_store_4(
              shared + Tile::offset(first + 16 * t + 8 * h + lane / 4, n) + 4 * (lane % 4),
              Type::pack(o[t][n][2 * h], o[t][n][2 * h + 1]));
    __syncwarp();
    uint16_t* out = static_cast<uint16_t*>(call.out.data) + origin;
#pragma unroll 4
    for (int at = lane; at < T::kWarpRows * Tile::kChunks; at += 32) {
      const int row = first + at / Tile::kChunks, chunk = at % Tile::kChunks;
      if (tile_row + row < item.q_length && chunk * 8 < call.dim_v)
        *reinterpret_cast<uint4*>(out + row * call.out.row + chunk * 8) =
            cuda::shared_load_16(shared + Tile::offset(row, chunk));
    }
  }
  FOVEA_DEVICE void store_elements(int64_t origin) {
#pragma unroll
    for (int t = 0; t < T::kRowTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = row_of(t, h);
        if (row >= item.q_length) continue;
        const int64_t line = origin + int64_t{row - tile_row} * call.out.row;
#pragma unroll
        for (int n = 0; n < T::kHeadDim / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int column = 8 * n + 2 * (lane % 4) + e;
            if (column >= call.dim_v) continue;
            const float x = o[t][n][2 * h + e];
            if (call.out_float)
              static_cast<float*>(call.out.data)[line + column] = x;
            else
              static_cast<uint16_t*>(call.out.data)[line + column] =
                  static_cast<uint16_t>(Type::pack(x, 0.f));
          }
      }
  }
};

template <class Type, int kDim, Form kForm, Generation kGeneration>
using TraitsOf = Traits<Type, kDim, kForm, schedule(kDim, kForm, kGeneration)>;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr Generation kCompiled = Generation::hopper;
#else
inline constexpr Generation kCompiled = Generation::ampere;
#endif

template <class Type, int kDim, Form kForm>
__global__ void __launch_bounds__(TraitsOf<Type, kDim, kForm, kCompiled>::kThreads,
                                  TraitsOf<Type, kDim, kForm, kCompiled>::kBlocks)
    flash_sm80_kernel(const __grid_constant__ Params p) {
  using T = TraitsOf<Type, kDim, kForm, kCompiled>;
  extern __shared__ __align__(1024) uint8_t storage[];
  const int line = static_cast<int>(blockIdx.x) / p.tiles;
  int tile = static_cast<int>(blockIdx.x) - line * p.tiles;
  if (p.longest_first) tile = p.tiles - 1 - tile;
  const int batch = line / p.call.heads, head = line - batch * p.call.heads;
  const cuda::Item item = cuda::find_item(p.call, batch);
  if (tile * T::kBlockQ >= item.q_length) return;
  Attention<T>(p, cuda::shared_address(storage), item, head, tile * T::kBlockQ).run();
}

template <class Type, int kDim, Form kForm>
KernelInfo kernel_info() {
  using Ampere = TraitsOf<Type, kDim, kForm, Generation::ampere>;
  using Hopper = TraitsOf<Type, kDim, kForm, Generation::hopper>;
  return {reinterpret_cast<const void*>(&flash_sm80_kernel<Type, kDim, kForm>),
          {Ampere::kSharedBytes, Ampere::kThreads},
          {Hopper::kSharedBytes, Hopper::kThreads}};
}

/// The instances of one type and form, by bucket.
template <class Type, Form kForm, int... kDims>
KernelInfo find_kernel(const Key& key) {
  KernelInfo info;
  ((key.head_dim == kDims ? (info = kernel_info<Type, kDims, kForm>(), true) : false) || ...);
  return info;
}

}  // namespace fovea::flash_sm80
