// One tile of queries against one block of keys, by vectors.
//
// A tile is up to kTileVectors vectors of queries. Its scores are kept transposed, [key][lanes], so
// that row maxima, exponentials, sums and rescaling are all vertical and every operand but the
// broadcast strip is a vector of queries. For one tile and one block of keys:
//
//   S[key][q]  = K strip x Q panel (+ mask terms), row maxima taken as the register tile finishes
//   P[key][q]  = 2^(S - max), block row sums
//   O[dim][q]  = alpha * O + (V strip x P panel)
//
// Sums run over at most kMaxBlockKeys keys from zero and are then added to the running ones: two
// levels, for O and for the row sums.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/elements.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"
#include "src/backends/cpu_flash/pair_exponent.hpp"
#include "src/backends/cpu_flash/tile.hpp"
#include "src/backends/cpu_flash/tile_multiply.hpp"
#include "src/simd/exp2.hpp"

namespace fovea::cpu_flash {

template <class P, int NR>
struct TileAttention {
  using V = typename P::Vec;
  using Float = typename V::Float;
  static constexpr int kRows = V::kTileRows;
  static constexpr int kLanes = NR * V::kLanes;

  // Words that one running sum of a score takes; a single one over a long head loses more than the
  // contract allows for large scores.
  static constexpr int64_t kScoreRun = 64;

  // Products of pairs are scaled after the sum, since a scaled query would be rounded again. `late`
  // leaves that to the exponentials, one multiply-add instead of a product and a difference, and
  // takes maxima of what is not scaled yet. A scale above 1 might make those infinite.
  struct Scale {
    bool late;
    Float strip;     // what a strip is multiplied by, unless late
    Float exponent;  // what the exponentials multiply by: 1, unless late
  };
  static FOVEA_INLINE Scale score_scale(float scale) {
    if constexpr (P::kGroup == 1) return {false, V::set(1.f), V::set(1.f)};
    const bool late = scale <= 1.f;
    return {late, V::set(scale), V::set(late ? scale : 1.f)};
  }

  // One register tile of scores, of whose keys `valid` exist: the product, in place, and its
  // maxima. Products of float32 take their terms here; products of pairs do so in the exponentials.
  template <bool kMasked>
  static FOVEA_INLINE void score_strip(const float* k, const float* q, int64_t words, int64_t valid,
                                       const Scale& scale, const float* terms, FetchQueue& fetch,
                                       float* scores, Float (&max)[NR]) {
    const int64_t first = words < kScoreRun ? words : kScoreRun;
    tile_multiply<P, NR, Finish::store>(k, q, first, scores, fetch.take(first / kTileSteps, k));
    for (int64_t done = kScoreRun; done < words; done += kScoreRun) {
      const int64_t left = words - done;
      const int64_t run = left < kScoreRun ? left : kScoreRun;
      tile_multiply<P, NR, Finish::add>(k + done * kRows, q + done * kLanes, run, scores,
                                        fetch.take(run / kTileSteps, k));
    }
    for (int64_t i = 0; i < valid; ++i) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        float* const at = scores + i * kLanes + r * V::kLanes;
        Float s = V::load(at);
        if constexpr (P::kGroup == 2) {
          if (!scale.late) V::store(at, s = V::mul(s, scale.strip));
        }
        if constexpr (kMasked) {
          s = masked_score(s, scale, V::load(terms + i * kLanes + r * V::kLanes));
          if constexpr (P::kGroup == 1) V::store(at, s);
        }
        max[r] = V::max(max[r], s);
      }
    }
  }

  static FOVEA_INLINE Float masked_score(Float s, const Scale& scale, Float term) {
    if constexpr (P::kGroup == 2) s = V::mul(s, scale.exponent);
    return with_term<V>(s, term);
  }

  template <bool kMasked>
  static FOVEA_INLINE void score_block(const Params& params, const Tile& tile, const KeyRange& keys,
                                       const Scale& scale, const float* terms, FetchQueue& fetch,
                                       float* scores, Float (&old_max)[NR], Float (&max)[NR]) {
    const int64_t words = (params.head_dim + P::kGroup - 1) / P::kGroup;
    // Unscaled maxima begin anew.
    const bool unscaled = !kMasked && scale.late;
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) max[r] = unscaled ? V::set(-kInfinity) : old_max[r];
    int64_t p = keys.begin;
    for (; p + kRows <= keys.end; p += kRows) {
      score_strip<kMasked>(keys.k + p * words, tile.q, words, kRows, scale,
                           kMasked ? terms + p * kLanes : nullptr, fetch, scores + p * kLanes, max);
    }
    if (p < keys.end) {
      score_strip<kMasked>(keys.k + p * words, tile.q, words, keys.end - p, scale,
                           kMasked ? terms + p * kLanes : nullptr, fetch, scores + p * kLanes, max);
    }
    if (!unscaled) return;
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      max[r] = V::max(old_max[r], V::mul(max[r], scale.exponent));
    }
  }

  // The weight of one score of pairs. `careful`: with a term, or where some maximum is large.
  template <bool kCareful>
  static FOVEA_INLINE Float pair_weight(const float* score, const float* term, const Scale& scale,
                                        Float max) {
    const Float s = V::load(score);
    Float x[1];
    if constexpr (kCareful) {
      x[0] = careful_exponent<V>(s, scale.exponent, term == nullptr ? V::set(0.f) : V::load(term),
                                 max);
    } else {
      x[0] = V::fma(s, scale.exponent, V::neg(max));
    }
    simd::exp2_rough<V>(x);
    return x[0];
  }

  template <bool kCareful>
  static FOVEA_INLINE void pair_weights(const KeyRange& keys, const Scale& scale,
                                        const float* terms, const Float (&max)[NR], float* scores,
                                        Float (&sum)[NR]) {
    for (int64_t p = keys.begin; p < keys.end; p += 2) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        const float* s = scores + p * kLanes + r * V::kLanes;
        const float* t = kCareful && terms != nullptr ? terms + (s - scores) : nullptr;
        const Float even = pair_weight<kCareful>(s, t, scale, max[r]);
        Float odd = V::set(0.f);
        if (p + 1 < keys.end) {
          odd = pair_weight<kCareful>(s + kLanes, t == nullptr ? t : t + kLanes, scale, max[r]);
        }
        V::store(scores + p / 2 * kLanes + r * V::kLanes, V::pair(even, odd));
        sum[r] = V::add(sum[r], V::add(even, odd));
      }
    }
  }

  // Scores become probabilities in place (pairs fill the first half); adds their sums to `sum`.
  static FOVEA_INLINE void exponentials(const KeyRange& keys, const Scale& scale,
                                        const float* terms, const Float (&max)[NR], float* scores,
                                        Float (&sum)[NR]) {
    if constexpr (P::kGroup == 1) {
      for (int64_t p = keys.begin; p < keys.end; ++p) {
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          float* s = scores + p * kLanes + r * V::kLanes;
          const Float e = simd::exp2_nonpositive<V>(V::sub(V::load(s), max[r]));
          V::store(s, e);
          sum[r] = V::add(sum[r], e);
        }
      }
    } else {
      bool careful = terms != nullptr;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) careful |= !V::all(rounds_once<V>(max[r]));
      if (careful) {
        pair_weights<true>(keys, scale, terms, max, scores, sum);
      } else {
        pair_weights<false>(keys, scale, terms, max, scores, sum);
      }
    }
  }

  static FOVEA_INLINE void value_block(const Tile& tile, const KeyRange& keys, int64_t dim_v,
                                       int64_t strip_floats, const float* probabilities,
                                       const float* alpha, FetchQueue& fetch) {
    const bool started = tile.started;
    const int64_t first = keys.begin / P::kGroup;
    const int64_t words = (keys.end + P::kGroup - 1) / P::kGroup - first;
    const float* v = keys.v + first * kRows;
    float* o = tile.o;
    for (int64_t d = 0; d < dim_v; d += kRows) {
      const Ahead ahead = fetch.take(words / kTileSteps, v);
      if (started) {
        tile_multiply<P, NR, Finish::rescale>(v, probabilities + first * kLanes, words, o, ahead,
                                              alpha);
      } else {
        tile_multiply<P, NR, Finish::store>(v, probabilities + first * kLanes, words, o, ahead);
      }
      v += strip_floats;
      o += kRows * kLanes;
    }
  }

  // The same sums where some pair is hidden and some value is NaN or infinite: a hidden pair is
  // skipped by selection, because 0 * NaN would reach the row. No terms: none of keys is hidden.
  static void value_block_selected(const Tile& tile, const KeyRange& keys, int64_t dim_v,
                                   int64_t strip_floats, const float* probabilities,
                                   const float* terms, const Float (&alpha)[NR]) {
    const Float hidden = V::set(-kInfinity);
    for (int64_t d = 0; d < dim_v; ++d) {
      const float* column = keys.v + d / kRows * strip_floats + d % kRows;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        Float acc = V::set(0.f);
        for (int64_t p = keys.begin; p < keys.end; ++p) {
          Float value = V::set(column[p / P::kGroup * kRows]);
          Float weight = V::load(probabilities + p / P::kGroup * kLanes + r * V::kLanes);
          if constexpr (P::kGroup == 2) {
            value = p % 2 == 0 ? V::even_half(value) : V::odd_half(value);
            weight = p % 2 == 0 ? V::even_half(weight) : V::odd_half(weight);
          }
          const Float sum = V::fma(value, weight, acc);
          acc = terms == nullptr
                    ? sum
                    : V::select(V::equal(V::load(terms + p * kLanes + r * V::kLanes), hidden), acc,
                                sum);
        }
        float* target = tile.o + d * kLanes + r * V::kLanes;
        V::store(target, tile.started ? V::fma(alpha[r], V::load(target), acc) : acc);
      }
    }
  }

  // Everything one tile does with one block.
  [[gnu::noinline]] static void block(const Params& params, const Geometry& geometry, Tile& tile,
                                      const KeyRange& keys, const float* terms, bool select_values,
                                      FetchQueue& fetch, float* scores) {
    const Scale scale = score_scale(params.scale * kLog2E);
    Float max[NR], old_max[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) old_max[r] = V::load(tile.max + r * V::kLanes);
    if (terms != nullptr) {
      score_block<true>(params, tile, keys, scale, terms, fetch, scores, old_max, max);
    } else {
      score_block<false>(params, tile, keys, scale, terms, fetch, scores, old_max, max);
    }

    Float alpha[NR], sum[NR], base[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      V::store(tile.max + r * V::kLanes, max[r]);
      // A row that has seen no key yet: -inf - 0 gives weights of 0, where -inf - -inf is NaN.
      base[r] = V::select(V::equal(max[r], V::set(-kInfinity)), V::set(0.f), max[r]);
      // Exactly 1 where the maximum stays: the polynomial's error would add up over the blocks.
      alpha[r] = V::select(V::equal(old_max[r], max[r]), V::set(1.f),
                           simd::exp2_nonpositive<V>(V::sub(old_max[r], base[r])));
      sum[r] = V::set(0.f);
    }
    exponentials(keys, scale, terms, base, scores, sum);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      float* target = tile.sum + r * V::kLanes;
      V::store(target, V::fma(alpha[r], V::load(target), sum[r]));
    }
    const int64_t strip_floats = geometry.v_strip_floats;
    if (select_values) {
      value_block_selected(tile, keys, params.dim_v, strip_floats, scores, terms, alpha);
    } else {
      alignas(64) float factors[kLanes];
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) V::store(factors + r * V::kLanes, alpha[r]);
      value_block(tile, keys, params.dim_v, strip_floats, scores, factors, fetch);
    }
    tile.started = true;
  }
};

}  // namespace fovea::cpu_flash
