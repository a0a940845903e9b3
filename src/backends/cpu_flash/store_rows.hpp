// Finished tiles, panels [column][lanes], become rows of the output.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/elements.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash {

// How columns become 32-bit words of a row.
template <class V>
struct StoreF32 {
  using Element = float;
  static constexpr int kPerWord = 1;
};

template <class V>
struct StoreBf16 {
  using Element = uint16_t;
  static constexpr int kPerWord = 2;

  // Round to nearest, ties to even; a NaN keeps its sign and becomes quiet.
  static FOVEA_INLINE typename V::Float pair(typename V::Float even, typename V::Float odd) {
    if constexpr (V::kHasBf16Dot) {
      if (!V::any_subnormal(even, odd)) return V::pair(even, odd);
    }
    typedef uint32_t Bits __attribute__((vector_size(4 * V::kLanes)));
    const auto rounded = [](typename V::Float x) __attribute__((always_inline)) {
      const Bits bits = (Bits)x;
      const Bits up = bits + 0x7fffu + ((bits >> 16) & 1u);
      return (Bits)V::select(V::equal(x, x), (typename V::Float)up,
                             (typename V::Float)(bits | 0x400000u));
    };
    return (typename V::Float)((rounded(even) >> 16) | (rounded(odd) & 0xffff0000u));
  }
};

template <class V>
struct StoreF16 {
  using Element = uint16_t;
  static constexpr int kPerWord = 2;
  static FOVEA_INLINE typename V::Float pair(typename V::Float even, typename V::Float odd) {
    return V::pair_f16(even, odd);
  }
};

// Writes the output panel, times inverse[lane]. A vector's worth of every row is written at a time,
// as rows_to_columns reads.
template <class V, class S>
FOVEA_INLINE void store_rows(const Params& params, const Segment& segment, int64_t head,
                             int64_t row, int64_t rows, int64_t lanes, const float* panel,
                             const float* inverse) {
  using Element = typename S::Element;
  using Float = typename V::Float;
  constexpr int kQuads = V::kLanes / 4;
  constexpr int64_t kStep = 4 * S::kPerWord;
  const int64_t stride = params.out_seq;
  const int64_t dim_v = params.dim_v;
  Element* base = static_cast<Element*>(params.out) + segment.batch * params.out_batch +
                  head * params.out_head + (segment.q_begin + row) * stride;
  for (int64_t lane = 0; lane < rows; lane += V::kLanes) {
    const Float factor = V::load(inverse + lane);
    const int64_t valid = rows - lane < V::kLanes ? rows - lane : V::kLanes;
    Element* const target = base + lane * stride;
    // The words of columns d..d + 3 words on, one vector for four rows of each quad.
    const auto words = [&](int64_t d, Float(&x)[4]) __attribute__((always_inline)) {
      const auto column = [&](int64_t c) __attribute__((always_inline)) {
        const int64_t at = d + c < dim_v ? d + c : dim_v - 1;
        return V::mul(V::load(panel + at * lanes + lane), factor);
      };
      FOVEA_UNROLL for (int c = 0; c < 4; ++c) {
        if constexpr (S::kPerWord == 1) {
          x[c] = column(c);
        } else {
          x[c] = S::pair(column(2 * c), column(2 * c + 1));
        }
      }
      V::transpose_quads(x[0], x[1], x[2], x[3]);
    };
    // Whole lines of every row, or of the first `valid` rows.
    const auto lines = [&]<bool kAllRows>(int64_t d) __attribute__((always_inline)) {
      Float x[kQuads][4];
      FOVEA_UNROLL for (int g = 0; g < kQuads; ++g) words(d + g * kStep, x[g]);
      FOVEA_UNROLL for (int j = 0; j < 4; ++j) {
        Quad quads[kQuads][kQuads];
        FOVEA_UNROLL for (int g = 0; g < kQuads; ++g) V::split(x[g][j], quads[g]);
        FOVEA_UNROLL for (int i = 0; i < kQuads; ++i) {
          if (!kAllRows && 4 * i + j >= valid) continue;
          FOVEA_UNROLL for (int g = 0; g < kQuads; ++g) {
            simd::quad_store(target + (4 * i + j) * stride + d + g * kStep, quads[g][i]);
          }
        }
      }
    };
    int64_t d = 0;
    for (; d + kQuads * kStep <= dim_v; d += kQuads * kStep) {
      if (valid == V::kLanes) {
        lines.template operator()<true>(d);
      } else {
        lines.template operator()<false>(d);
      }
    }
    for (; d < dim_v; d += kStep) {
      Float x[4];
      words(d, x);
      Element part[V::kLanes][kStep];
      FOVEA_UNROLL for (int j = 0; j < 4; ++j) {
        Quad quads[kQuads];
        V::split(x[j], quads);
        FOVEA_UNROLL for (int i = 0; i < kQuads; ++i) simd::quad_store(part[4 * i + j], quads[i]);
      }
      const int64_t columns = dim_v - d < kStep ? dim_v - d : kStep;
      for (int64_t r = 0; r < valid; ++r) {
        for (int64_t c = 0; c < columns; ++c) target[r * stride + d + c] = part[r][c];
      }
    }
  }
}

}  // namespace fovea::cpu_flash
