// Packing for tile products: K and V as left operands, 32 rows of 16 words at a time.
//
//   K strips [key / 32][step of head_dim][32 keys][16 words]
//   V strips [column / 32][step of keys][32 columns][16 words]
//
// A word is two bfloat16 along the dot product, a step 32 of them. What does not exist is zero.
#pragma once

#include "src/backends/cpu_flash/pack.hpp"
#include "src/simd/tiles_amx.hpp"

#if defined(FOVEA_TILES_AMX)

namespace fovea::cpu_flash {

inline constexpr int64_t kStepElements = 2 * simd::amx::kTileWords;
inline constexpr int64_t kStepFloats = simd::amx::Vec::kTileRows * simd::amx::kTileWords;

template <class P>
void pack_key_tiles(const Params& params, const Segment& segment, int64_t head, int64_t first,
                    const BlockInfo& info, float* target) {
  constexpr int64_t kRows = P::Vec::kTileRows;
  constexpr int64_t kAhead = 16;
  const int64_t words = packed_words<P>(params.head_dim);
  const int64_t capacity = (info.count + kRows - 1) / kRows * kRows;
  const auto row = [&](int64_t p) __attribute__((always_inline)) {
    const int64_t key = first + (info.compacted ? info.index[p] : p);
    return row_pointer<LoadBf16>(params.k, segment, head, segment.kv_begin + key);
  };
  for (int64_t p = 0; p < capacity; ++p) {
    float* out = target + p / kRows * kRows * words + p % kRows * simd::amx::kTileWords;
    if (p + kAhead < info.count) prefetch_row<0>(row(p + kAhead), params.head_dim * int64_t{2});
    const uint16_t* const source = row(p < info.count ? p : info.count - 1);
    int64_t left = p < info.count ? params.head_dim : 0;
    for (int64_t e = 0; e < 2 * words; e += kStepElements) {
      const __mmask32 valid = left >= kStepElements ? ~__mmask32{0}
                              : left > 0            ? (__mmask32{1} << left) - 1
                                                    : __mmask32{0};
      _mm512_store_si512(out, _mm512_maskz_loadu_epi16(valid, source + e));
      out += kStepFloats;
      left -= kStepElements;
    }
  }
}

// Transposes 32 keys at a time: words of the even keys first, then those of the odd ones woven in.
template <class P>
void pack_value_tiles(const Params& params, const Geometry& geometry, const Segment& segment,
                      int64_t head, int64_t first, BlockInfo* info, float* target) {
  using V = typename P::Vec;
  using Float = typename V::Float;
  constexpr int64_t kRows = V::kTileRows;
  const int64_t dim_v = params.dim_v;
  const int64_t columns = (dim_v + kRows - 1) / kRows * kRows;
  const __m512i low_half = _mm512_set1_epi32(0xffff);
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 nonfinite = 0;
  for (int64_t p = 0; p < info->count; p += kStepElements) {
    float* const step = target + p / kStepElements * kStepFloats;
    const auto column = [&](int64_t d) __attribute__((always_inline)) {
      return step + d / kRows * geometry.v_strip_floats + d % kRows * simd::amx::kTileWords;
    };
    FOVEA_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const uint16_t* rows[V::kLanes];
      __mmask16 valid = 0;
      for (int64_t i = 0; i < V::kLanes; ++i) {
        const int64_t at = p + 2 * i + odd;
        if (at < info->count) valid = static_cast<__mmask16>(valid | 1u << i);
        const int64_t q = at < info->count ? at : info->count - 1;
        const int64_t key = first + (info->compacted ? info->index[q] : q);
        rows[i] = row_pointer<LoadBf16>(params.v, segment, head, segment.kv_begin + key);
        if (at + kStepElements < info->count && !info->compacted) {
          prefetch_row<0>(rows[i] + kStepElements * params.v.seq, dim_v * int64_t{2});
        }
      }
      rows_to_columns<V, LoadBf16Pairs, false>(
          rows, dim_v, V::set(1.f), [&](int64_t word, Float x) __attribute__((always_inline)) {
            const __m512i halves = _mm512_maskz_mov_epi32(valid, _mm512_castps_si512(x));
            nonfinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(halves, exponent), exponent);
            float* const low = column(2 * word);
            float* const high = low + simd::amx::kTileWords;
            if (odd == 0) {
              _mm512_store_si512(low, halves);
              return;
            }
            const __m512i even = _mm512_load_si512(low);
            _mm512_store_si512(low, _mm512_or_si512(_mm512_and_si512(even, low_half),
                                                    _mm512_slli_epi32(halves, 16)));
            _mm512_store_si512(high, _mm512_or_si512(_mm512_srli_epi32(even, 16),
                                                     _mm512_andnot_si512(low_half, halves)));
          });
    }
    for (int64_t d = (dim_v + 1) / 2 * 2; d < columns; ++d) V::store(column(d), V::set(0.f));
  }
  info->v_nonfinite = nonfinite != 0;
}

template <class P>
void pack_block_tiles(const Params& params, const Geometry& geometry, const Segment& segment,
                      int64_t head_kv, int64_t block, float* k, float* v, BlockInfo* info) {
  const int64_t first = block * geometry.block_keys;
  const int64_t rest = segment.kv_length - first;
  const int64_t keys = rest < geometry.block_keys ? rest : geometry.block_keys;
  select_keys<typename P::Vec>(params, geometry, segment, head_kv, first, keys, info);
  pack_key_tiles<P>(params, segment, head_kv, first, *info, k);
  pack_value_tiles<P>(params, geometry, segment, head_kv, first, info, v);
}

}  // namespace fovea::cpu_flash

#endif
