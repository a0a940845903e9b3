// Packing: keys and values of one block into strips, once per (batch item, kv head).
//
//   K strips [key / kTileRows][word of head_dim][kTileRows]
//   V strips [column / kTileRows][word of keys][kTileRows]
//
// A word is one float32, or two bfloat16 along the dot product. Keys that no query may see are left
// out here, so the products never meet them.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/elements.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash {

// Words of a packed row of `elements`: whole steps, zeros past the last element.
template <class P>
FOVEA_INLINE constexpr int64_t packed_words(int64_t elements) {
  constexpr int64_t kStep = P::kGroup * P::kDepth;
  return (elements + kStep - 1) / kStep * P::kDepth;
}

// Applies the masks that depend on the key alone: fills count, index and bias.
template <class V>
void select_keys(const Params& params, const Geometry& geometry, const Segment& segment,
                 int64_t head_kv, int64_t first, int64_t keys, BlockInfo* info) {
  info->count = static_cast<int32_t>(keys);
  info->compacted = 0;
  info->biased = 0;
  info->v_nonfinite = 0;
  if (geometry.key_masks == 0) return;
  float terms[kMaxBlockKeys];
  for (int64_t p = 0; p < keys; ++p) terms[p] = 0.f;
  for (int32_t m = 0; m < params.num_masks; ++m) {
    if ((geometry.key_masks >> m & 1u) == 0) continue;
    const Mask& mask = params.masks[m];
    visit_mask_type<V>(
        mask.type, [&](auto elements) __attribute__((always_inline)) {
          const char* p =
              static_cast<const char*>(mask.data) +
              (segment.batch * mask.batch + head_kv * mask.head + first) * elements.kBytes;
          for (int64_t j = 0; j < keys; ++j) {
            const float term = elements.load_one(p + j * elements.kBytes);
            terms[j] = combine_terms(simd::quad_set(terms[j]), simd::quad_set(term))[0];
          }
        });
  }
  int32_t count = 0;
  for (int64_t j = 0; j < keys; ++j) {
    if (terms[j] == -kInfinity) continue;
    info->index[count] = static_cast<uint16_t>(j);
    info->bias[count] = terms[j];
    if (terms[j] != 0.f) info->biased = 1;
    ++count;
  }
  info->compacted = count != keys;
  info->count = count;
}

template <class L>
FOVEA_INLINE const typename L::Element* row_pointer(const Tensor& tensor, const Segment& segment,
                                                    int64_t head, int64_t row) {
  return static_cast<const typename L::Element*>(tensor.data) + segment.batch * tensor.batch +
         row * tensor.seq + head * tensor.head;
}

// As many keys at a time as a vector has lanes: two strips, one, or half of one.
template <class P, class L>
void pack_keys(const Params& params, const Segment& segment, int64_t head, int64_t first,
               const BlockInfo& info, float* target) {
  using V = typename P::Vec;
  constexpr int kRows = V::kTileRows;
  constexpr int kLanes = V::kLanes;
  static_assert(kLanes == 2 * kRows || kRows % kLanes == 0);
  const int64_t words = (params.head_dim + P::kGroup - 1) / P::kGroup;
  const int64_t capacity = (info.count + kRows - 1) / kRows * kRows;
  for (int64_t p = 0; p < capacity; p += kLanes) {
    const typename L::Element* rows[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t q = p + i < info.count ? p + i : info.count - 1;  // the rest is never read
      const int64_t key = first + (info.compacted ? info.index[q] : q);
      rows[i] = row_pointer<L>(params.k, segment, head, segment.kv_begin + key);
      if (p + kLanes + i < info.count) {
        prefetch_row<0>(rows[i] + kLanes * params.k.seq,
                        params.head_dim * int64_t{sizeof(*rows[i])});
      }
    }
    float* const strip = target + p / kRows * words * kRows + p % kRows;
    if constexpr (kLanes == 2 * kRows) {
      // Where the keys end before the second strip there is no memory for it; the first half is
      // stored last.
      float* const second = p + kRows < capacity ? strip + words * kRows : strip;
      rows_to_columns<V, L, false>(
          rows, params.head_dim,
          V::set(1.f), [&](int64_t word, typename V::Float x) __attribute__((always_inline)) {
            V::store_halves(strip + word * kRows, second + word * kRows, x);
          });
    } else {
      rows_to_columns<V, L, false>(
          rows, params.head_dim,
          V::set(1.f), [&](int64_t word, typename V::Float x) __attribute__((always_inline)) {
            V::store(strip + word * kRows, x);
          });
    }
  }
}

// Lanes of the result are all ones where x is NaN or infinite.
FOVEA_INLINE QuadInt quad_nonfinite(Quad x) {
  const Quad difference = x - x;
  return difference != difference;
}

// One word per key. Strips are written four keys at a time, so that whole lines are written.
template <class P, class L>
void pack_values(const Params& params, const Geometry& geometry, const Segment& segment,
                 int64_t head, int64_t first, BlockInfo* info, float* target) {
  constexpr int kRows = P::Vec::kTileRows;
  const int64_t strip_floats = geometry.v_strip_floats;
  const int64_t dim_v = params.dim_v;
  QuadInt nonfinite = {};
  for (int64_t p = 0; p < info->count; p += 4) {
    const int64_t keys = info->count - p < 4 ? info->count - p : 4;
    const typename L::Element* rows[4] = {};
    for (int64_t i = 0; i < keys; ++i) {
      const int64_t key = first + (info->compacted ? info->index[p + i] : p + i);
      rows[i] = row_pointer<L>(params.v, segment, head, segment.kv_begin + key);
    }
    float* out = target + p * kRows;
    int64_t d = 0;
    if (keys == 4) {
      for (int64_t i = 0; i < 4 && p + i + 4 < info->count; ++i) {
        prefetch_row<0>(rows[i] + 4 * params.v.seq, dim_v * int64_t{sizeof(*rows[i])});
      }
      for (; d + kRows <= dim_v; d += kRows) {
        __builtin_prefetch(out + 8 * kRows, 1);  // the line of this strip after the next
        FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
          FOVEA_UNROLL for (int part = 0; part < kRows; part += 4) {
            const Quad x = L::load(rows[i] + d + part);
            nonfinite |= quad_nonfinite(x);
            simd::quad_store(out + i * kRows + part, x);
          }
        }
        out += strip_floats;
      }
    }
    for (; d < dim_v; d += kRows) {
      for (int64_t i = 0; i < keys; ++i) {
        for (int part = 0; part < kRows; part += 4) {
          const int64_t left = dim_v - d - part;
          const Quad x = left > 0 ? load_partial<L>(rows[i] + d + part, left) : Quad{};
          nonfinite |= quad_nonfinite(x);
          simd::quad_store(out + i * kRows + part, x);
        }
      }
      out += strip_floats;
    }
  }
  info->v_nonfinite = (nonfinite[0] | nonfinite[1] | nonfinite[2] | nonfinite[3]) != 0;
}

// Two bfloat16 per word: keys 2j (low half) and 2j + 1 (high half, 0 past the last key).
template <class P>
void pack_value_pairs(const Params& params, const Geometry& geometry, const Segment& segment,
                      int64_t head, int64_t first, BlockInfo* info, float* target) {
  using V = typename P::Vec;
  constexpr int kRows = V::kTileRows;
  const int64_t strip_floats = geometry.v_strip_floats;
  const int64_t dim_v = params.dim_v;
  QuadInt nonfinite = {};
  typename V::Float largest = V::set(0.f);
  for (int64_t p = 0; p < info->count; p += 2) {
    const uint16_t* rows[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t q = p + i < info->count ? p + i : p;
      const int64_t key = first + (info->compacted ? info->index[q] : q);
      rows[i] = row_pointer<LoadBf16>(params.v, segment, head, segment.kv_begin + key);
      constexpr int kAhead = 8;
      if (p + kAhead + i < info->count) {
        prefetch_row<0>(rows[i] + kAhead * params.v.seq, dim_v * int64_t{sizeof(*rows[i])});
      }
    }
    const QuadBits high_mask = p + 1 < info->count ? QuadBits{} - 1u : QuadBits{};
    float* out = target + p / 2 * kRows;
    int64_t d = 0;
    if constexpr (V::kLanes == 2 * kRows) {
      for (; p + 1 < info->count && d + V::kLanes <= dim_v; d += V::kLanes) {
        const typename V::Float words = V::interleave(rows[0] + d, rows[1] + d);
        largest = V::larger_halves(largest, words);
        V::store_halves(out, out + strip_floats, words);
        out += 2 * strip_floats;
      }
    }
    for (; d < dim_v; d += kRows) {
      FOVEA_UNROLL for (int part = 0; part < kRows; part += 4) {
        const int64_t left = dim_v - d - part;
        Quad even = {}, odd = {};
        if (left >= 4) {
          even = simd::quad_from_bf16(rows[0] + d + part);
          odd = simd::quad_from_bf16(rows[1] + d + part);
        } else if (left > 0) {
          even = load_partial<LoadBf16>(rows[0] + d + part, left);
          odd = load_partial<LoadBf16>(rows[1] + d + part, left);
        }
        odd = (Quad)((QuadBits)odd & high_mask);
        nonfinite |= quad_nonfinite(even) | quad_nonfinite(odd);
        simd::quad_store(out + part, (Quad)(((QuadBits)even >> 16) | (QuadBits)odd));
      }
      out += strip_floats;
    }
  }
  info->v_nonfinite = (nonfinite[0] | nonfinite[1] | nonfinite[2] | nonfinite[3]) != 0 ||
                      V::nonfinite_half(largest);
}

template <class P>
void pack_block(const Params& params, const Geometry& geometry, const Segment& segment,
                int64_t head_kv, int64_t block, float* k, float* v, BlockInfo* info) {
  using V = typename P::Vec;
  const int64_t first = block * geometry.block_keys;
  const int64_t rest = segment.kv_length - first;
  const int64_t keys = rest < geometry.block_keys ? rest : geometry.block_keys;
  select_keys<V>(params, geometry, segment, head_kv, first, keys, info);
  if constexpr (P::kGroup == 2) {
    pack_keys<P, LoadBf16Pairs>(params, segment, head_kv, first, *info, k);
    pack_value_pairs<P>(params, geometry, segment, head_kv, first, info, v);
  } else {
    switch (params.dtype) {
      case FloatType::f32:
        pack_keys<P, LoadF32>(params, segment, head_kv, first, *info, k);
        pack_values<P, LoadF32>(params, geometry, segment, head_kv, first, info, v);
        break;
      case FloatType::bf16:
        pack_keys<P, LoadBf16>(params, segment, head_kv, first, *info, k);
        pack_values<P, LoadBf16>(params, geometry, segment, head_kv, first, info, v);
        break;
      case FloatType::f16:
        pack_keys<P, LoadF16<V>>(params, segment, head_kv, first, *info, k);
        pack_values<P, LoadF16<V>>(params, geometry, segment, head_kv, first, info, v);
        break;
    }
  }
}

// Queries of one tile as a panel [word of head_dim][lanes], times `factor` unless words are pairs.
// Lanes past the last row repeat it.
template <class P, class L>
FOVEA_INLINE void pack_queries(const Params& params, const Segment& segment, int64_t head,
                               int64_t row, int64_t rows, int64_t lanes, float* panel) {
  using V = typename P::Vec;
  const typename V::Float factor = V::set(params.scale * kLog2E);
  for (int64_t lane = 0; lane < lanes; lane += V::kLanes) {
    const typename L::Element* source[V::kLanes];
    for (int64_t i = 0; i < V::kLanes; ++i) {
      const int64_t r = lane + i < rows ? lane + i : rows - 1;
      source[i] = row_pointer<L>(params.q, segment, head, segment.q_begin + row + r);
    }
    rows_to_columns<V, L, L::kPerWord == 1>(
        source, params.head_dim,
        factor, [&](int64_t word, typename V::Float x) __attribute__((always_inline)) {
          V::store(panel + word * lanes + lane, x);
        });
  }
}

}  // namespace fovea::cpu_flash
