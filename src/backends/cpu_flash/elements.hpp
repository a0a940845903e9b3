// Reading rows of any dtype four words at a time, and mask elements as additive terms.
#pragma once

#include <cfloat>
#include <cstdint>

#include "src/backends/cpu_flash/params.hpp"
#include "src/simd/quad.hpp"

namespace fovea::cpu_flash {

using simd::FloatMem;
using simd::HalfMem;
using simd::Quad;
using simd::QuadBits;
using simd::QuadHalf;
using simd::QuadInt;

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kInfinity = __builtin_inff();

// A loader reads four 32-bit words from consecutive elements: one element each, widened to float32,
// or a pair of 16-bit elements as it is.
struct LoadF32 {
  using Element = float;
  static constexpr int kPerWord = 1;
  static FOVEA_INLINE Quad load(const Element* p) { return simd::quad_load(p); }
};

struct LoadBf16 {
  using Element = uint16_t;
  static constexpr int kPerWord = 1;
  static FOVEA_INLINE Quad load(const Element* p) { return simd::quad_from_bf16(p); }
};

template <class V>
struct LoadF16 {
  using Element = uint16_t;
  static constexpr int kPerWord = 1;
  static FOVEA_INLINE Quad load(const Element* p) { return V::quad_from_f16(p); }
};

struct LoadBf16Pairs {
  using Element = uint16_t;
  static constexpr int kPerWord = 2;
  static FOVEA_INLINE Quad load(const Element* p) { return simd::quad_load(p); }
};

// Rows of a strided tensor lie on different pages, where the hardware does not look ahead.
template <int kWrite>
FOVEA_INLINE void prefetch_row(const void* row, int64_t bytes) {
  const char* p = static_cast<const char*>(row);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, kWrite);
}

// The first `n` elements at p (fewer than four words), zeros after them.
template <class L>
FOVEA_INLINE Quad load_partial(const typename L::Element* p, int64_t n) {
  typename L::Element buffer[4 * L::kPerWord] = {};
  for (int64_t i = 0; i < n && i < 4 * L::kPerWord; ++i) buffer[i] = p[i];
  return L::load(buffer);
}

// Reads as many rows as a vector has lanes and calls store(word, vector) for every word of them:
// lane i of the vector is the word of row i. A vector's worth of every row is read at a time: rows
// are often a multiple of 4 KiB apart, and then fewer lines of them fit the cache than there are
// rows.
template <class V, class L, bool kScaled, class Store>
FOVEA_INLINE void rows_to_columns(const typename L::Element* const (&rows)[V::kLanes],
                                  int64_t elements, typename V::Float factor, Store&& store) {
  using Float = typename V::Float;
  using Element = typename L::Element;
  constexpr int kQuads = V::kLanes / 4;
  constexpr int64_t kStep = 4 * L::kPerWord;
  // Words word..word + 4 * groups - 1, of which `words` exist.
  const auto columns = [&]<int kGroups>(auto load, int64_t word, int64_t words)
      __attribute__((always_inline)) {
    Float x[kGroups][4];
    FOVEA_UNROLL for (int j = 0; j < 4; ++j) {
      Quad quads[kGroups][kQuads];
      FOVEA_UNROLL for (int i = 0; i < kQuads; ++i) {
        FOVEA_UNROLL for (int g = 0; g < kGroups; ++g) {
          quads[g][i] = load(rows[4 * i + j] + g * kStep);
        }
      }
      FOVEA_UNROLL for (int g = 0; g < kGroups; ++g) {
        x[g][j] = V::join(quads[g]);
        if constexpr (kScaled) x[g][j] = V::mul(x[g][j], factor);
      }
    }
    FOVEA_UNROLL for (int g = 0; g < kGroups; ++g) {
      V::transpose_quads(x[g][0], x[g][1], x[g][2], x[g][3]);
      FOVEA_UNROLL for (int c = 0; c < 4; ++c) {
        if (4 * g + c < words) store(word + 4 * g + c, x[g][c]);
      }
    }
  };
  int64_t e = 0, word = 0;
  const auto whole = [&](const Element* p) __attribute__((always_inline)) {
    return L::load(p + e);
  };
  for (; e + kQuads * kStep <= elements; e += kQuads * kStep, word += 4 * kQuads) {
    columns.template operator()<kQuads>(whole, word, 4 * kQuads);
  }
  for (; e + kStep <= elements; e += kStep, word += 4) {
    columns.template operator()<1>(whole, word, 4);
  }
  if (e == elements) return;
  const auto part = [&](const Element* p) __attribute__((always_inline)) {
    return load_partial<L>(p + e, elements - e);
  };
  columns.template operator()<1>(part, word, (elements - e + L::kPerWord - 1) / L::kPerWord);
}

// ---- masks: an element becomes a term of the score in units of log2, -infinity hides ----

// A finite term stays finite, so that it never hides.
FOVEA_INLINE Quad finite_term(Quad term, QuadInt was_infinite) {
  const QuadInt clamp_low = (term == simd::quad_set(-kInfinity)) & ~was_infinite;
  const QuadInt clamp_high = (term == simd::quad_set(kInfinity)) & ~was_infinite;
  term = clamp_low ? simd::quad_set(-FLT_MAX) : term;
  return clamp_high ? simd::quad_set(FLT_MAX) : term;
}

FOVEA_INLINE QuadInt quad_is_infinite(Quad x) {
  return (x == simd::quad_set(kInfinity)) | (x == simd::quad_set(-kInfinity));
}

FOVEA_INLINE Quad additive_term(Quad x) {
  return finite_term(x * simd::quad_set(kLog2E), quad_is_infinite(x));
}

FOVEA_INLINE Quad hidden_where(QuadInt hidden) {
  return hidden ? simd::quad_set(-kInfinity) : simd::quad_set(0.f);
}

// The sum of two terms; hidden by either is hidden, and two finite ones do not hide.
FOVEA_INLINE Quad combine_terms(Quad a, Quad b) {
  const Quad minus_infinity = simd::quad_set(-kInfinity);
  const QuadInt hidden = (a == minus_infinity) | (b == minus_infinity);
  const Quad sum = a + b;
  const Quad finite = sum < simd::quad_set(-FLT_MAX) ? simd::quad_set(-FLT_MAX) : sum;
  return hidden ? minus_infinity : finite;
}

template <class V, MaskType kType>
struct MaskElements {
  static constexpr int64_t kBytes = kType == MaskType::int64                                 ? 8
                                    : kType == MaskType::int32 || kType == MaskType::f32     ? 4
                                    : kType == MaskType::boolean || kType == MaskType::uint8 ? 1
                                                                                             : 2;

  static constexpr bool kAdditive =
      kType == MaskType::f32 || kType == MaskType::f16 || kType == MaskType::bf16;

  // `term` with four elements' own terms on top.
  static FOVEA_INLINE Quad apply(Quad term, Quad elements) {
    if constexpr (kAdditive) {
      return combine_terms(term, elements);
    } else {
      return elements == simd::quad_set(0.f) ? term : elements;
    }
  }

  // Four consecutive elements.
  static FOVEA_INLINE Quad load(const char* p) {
    if constexpr (kType == MaskType::f32) {
      return additive_term(simd::quad_load(p));
    } else if constexpr (kType == MaskType::bf16) {
      return additive_term(simd::quad_from_bf16(p));
    } else if constexpr (kType == MaskType::f16) {
      return additive_term(V::quad_from_f16(p));
    } else if constexpr (kType == MaskType::int32) {
      return hidden_where((QuadInt)simd::quad_load(p) == 0);
    } else if constexpr (kType == MaskType::boolean || kType == MaskType::uint8) {
      const simd::QuadBytes bytes = *reinterpret_cast<const simd::QuadBytes*>(p);
      return hidden_where((QuadInt) __builtin_convertvector(bytes, QuadBits) == 0);
    } else {
      Quad x = {};
      FOVEA_UNROLL for (int i = 0; i < 4; ++i) x[i] = load_one(p + i * kBytes);
      return x;
    }
  }

  static FOVEA_INLINE float load_one(const char* p) {
    if constexpr (kType == MaskType::boolean || kType == MaskType::uint8) {
      return *p != 0 ? 0.f : -kInfinity;
    } else if constexpr (kType == MaskType::int64) {
      typedef int64_t Int64Mem __attribute__((aligned(1), may_alias));
      return *reinterpret_cast<const Int64Mem*>(p) != 0 ? 0.f : -kInfinity;
    } else {
      alignas(16) char buffer[16] = {};
      for (int64_t i = 0; i < kBytes; ++i) buffer[i] = p[i];
      return load(buffer)[0];
    }
  }
};

// Calls visitor(MaskElements<V, type>{}) for the run-time type.
template <class V, class Visitor>
FOVEA_INLINE void visit_mask_type(MaskType type, Visitor&& visitor) {
  switch (type) {
    case MaskType::boolean:
    case MaskType::uint8:
      return visitor(MaskElements<V, MaskType::uint8>{});
    case MaskType::int32:
      return visitor(MaskElements<V, MaskType::int32>{});
    case MaskType::int64:
      return visitor(MaskElements<V, MaskType::int64>{});
    case MaskType::f32:
      return visitor(MaskElements<V, MaskType::f32>{});
    case MaskType::f16:
      return visitor(MaskElements<V, MaskType::f16>{});
    case MaskType::bf16:
      return visitor(MaskElements<V, MaskType::bf16>{});
  }
}

}  // namespace fovea::cpu_flash
