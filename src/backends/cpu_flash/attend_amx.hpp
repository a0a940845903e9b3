// One tile of queries against one block of keys by AMX: the products of attend.hpp's loop as
// products of tile registers, four accumulators (32 keys or columns x 32 queries) at a time.
//
// Tile products and vector instructions use different pipes, so the work is issued interleaved:
//
//   strip s + 1:  S = K Q          tile products
//   strip s:      P = 2^(S - ref)  vectors
//   strips < s:   O += V P         tile products
//
// Three differences from the vector kernels make that possible. `ref`, what is subtracted, is the
// largest score of the row's first strip, and moves only after a strip whose weights sum to more
// than kLargeSum, which is then done again: most strips need no maximum, and O no rescaling.
// Weights above 1 cost no accuracy. Strips with finite terms or large references take more careful
// exponents (pair_exponent.hpp), out of line. O accumulates in place, one level, where the contract
// asks for two for float32 inputs only. And exponentials are as exact as their rounding to bfloat16
// needs. A row still depends on nothing but itself.
#pragma once

#include "src/backends/cpu_flash/attend.hpp"
#include "src/backends/cpu_flash/pair_exponent.hpp"
#include "src/simd/tiles_amx.hpp"

#if defined(FOVEA_TILES_AMX)

namespace fovea::cpu_flash {

// bfloat16 products of tiles, summed in float32.
template <class V>
struct TileProducts {
  using Vec = V;
  using Float = typename V::Float;
  static constexpr int kGroup = 2;
  static constexpr int kDepth = simd::amx::kTileWords;
  static constexpr FloatType kProducts = FloatType::bf16;
};

template <class V, int NR>
struct TileAttention<TileProducts<V>, NR> {
  using P = TileProducts<V>;
  using Float = typename V::Float;
  static constexpr int64_t kStrip = V::kTileRows;  // keys
  static constexpr int kLanes = NR * V::kLanes;
  static constexpr int kWords = simd::amx::kTileWords;
  static constexpr int64_t kStepFloats = kStrip * kWords;  // of K or V: one step of one strip
  static constexpr int64_t kRowBytes = kLanes * 4;
  static constexpr int kKeys = 8 / NR;  // whose exponentials are computed in step
  static constexpr int kUnits = kStrip / kKeys;
  static constexpr int64_t kAhead = 2 * kStrip;
  static constexpr int64_t kRing = 3;         // strips of scores; more would not stay in L1
  static constexpr float kLargeSum = 8192.f;  // of the weights of one strip
  static_assert(NR <= 2 && kStrip == 2 * kWords && V::kLanes == kWords);

  struct Work {
    Tile& tile;
    const KeyRange& keys;
    float* weights;  // P [pair of keys][lanes]
    float* scores;   // S [key][lanes], a ring of kRing strips
    int64_t depth;   // steps along head_dim
    int64_t strips_v;
    int64_t v_strip_floats;
    int64_t dim_v;
    const float* terms;  // null: none
    bool select_values;
    FetchQueue& fetch;
  };

  // Fetches into L2 with one step of a product, a line for every kTileSteps words.
  static FOVEA_INLINE void fetch_lines(Ahead& ahead) {
    if (ahead.step == 0) return;
    const char* at = static_cast<const char*>(ahead.at);
    FOVEA_UNROLL for (int i = 0; i < kWords / kTileSteps; ++i) {
      __builtin_prefetch(at, 0, 2);
      at += ahead.step;
    }
    ahead.at = at;
  }

  static FOVEA_INLINE float* scores_of(const Work& work, int64_t p) {
    return work.scores + p / kStrip % kRing * kStrip * kLanes;
  }

  // ---- tile products ----

  // Where accumulator kC of a group of 32 rows lies in memory.
  template <int kC>
  static FOVEA_INLINE float* accumulator(float* c) {
    return c + kC / 2 * kWords * kLanes + kC % 2 * kWords;
  }

  // Accumulators stay in tile registers until those of the next group need the place: a tile's
  // stores take as long as its product, and four in a row would keep the products waiting.
  template <int kC, bool kLoad>
  static FOVEA_INLINE void exchange_accumulator(float* held, float* c) {
    if (held != nullptr) simd::amx::tile_store<kC>(accumulator<kC>(held), kRowBytes);
    if constexpr (kLoad) {
      simd::amx::tile_load<kC>(accumulator<kC>(c), kRowBytes);
    } else {
      simd::amx::tile_zero<kC>();
    }
  }

  static FOVEA_INLINE void store_accumulators(float*& held) {
    if (held == nullptr) return;
    simd::amx::tile_store<0>(accumulator<0>(held), kRowBytes);
    if constexpr (NR == 2) simd::amx::tile_store<1>(accumulator<1>(held), kRowBytes);
    simd::amx::tile_store<2>(accumulator<2>(held), kRowBytes);
    if constexpr (NR == 2) simd::amx::tile_store<3>(accumulator<3>(held), kRowBytes);
    held = nullptr;
  }

  // The first step of a group: `a` is 32 rows of a strip, `b` 16 words of the panel, `c` what is
  // added to (kLoad) and becomes what is held.
  template <bool kLoad>
  static FOVEA_INLINE void multiply_first(const float* a, const float* b, float* c, float*& held) {
    simd::amx::tile_load<6>(b, kRowBytes);
    simd::amx::tile_load_once<4>(a, 4 * kWords);
    exchange_accumulator<0, kLoad>(held, c);
    simd::amx::tile_dot<0, 4, 6>();
    if constexpr (NR == 2) {
      simd::amx::tile_load<7>(b + kWords, kRowBytes);
      exchange_accumulator<1, kLoad>(held, c);
      simd::amx::tile_dot<1, 4, 7>();
    }
    simd::amx::tile_load_once<5>(a + kWords * kWords, 4 * kWords);
    exchange_accumulator<2, kLoad>(held, c);
    simd::amx::tile_dot<2, 5, 6>();
    if constexpr (NR == 2) {
      exchange_accumulator<3, kLoad>(held, c);
      simd::amx::tile_dot<3, 5, 7>();
    }
    held = c;
  }

  // A further step of the group.
  static FOVEA_INLINE void multiply(const float* a, const float* b) {
    simd::amx::tile_load<6>(b, kRowBytes);
    simd::amx::tile_load_once<4>(a, 4 * kWords);
    simd::amx::tile_dot<0, 4, 6>();
    if constexpr (NR == 2) {
      simd::amx::tile_load<7>(b + kWords, kRowBytes);
      simd::amx::tile_dot<1, 4, 7>();
    }
    simd::amx::tile_load_once<5>(a + kWords * kWords, 4 * kWords);
    simd::amx::tile_dot<2, 5, 6>();
    if constexpr (NR == 2) simd::amx::tile_dot<3, 5, 7>();
  }

  // Scores of the strip that starts at key p; calls between() after every step.
  template <class Between>
  static FOVEA_INLINE void score_strip(const Work& work, int64_t p, float*& held,
                                       Between&& between) {
    const float* k = work.keys.k + p * work.depth * kWords;
    const float* q = work.tile.q;
    Ahead ahead = work.fetch.take(work.depth * kWords / kTileSteps, nullptr);
    fetch_lines(ahead);
    multiply_first<false>(k, q, scores_of(work, p), held);
    between();
    for (int64_t step = 1; step < work.depth; ++step) {
      k += kStepFloats;
      q += kWords * kLanes;
      fetch_lines(ahead);
      multiply(k, q);
      between();
    }
  }

  // Columns of V strip `strip` by the weights of keys first..end-1, whole strips of keys.
  static FOVEA_INLINE void value_strip(const Work& work, int64_t strip, int64_t first, int64_t end,
                                       float*& held) {
    const float* v = work.keys.v + strip * work.v_strip_floats + first / kStrip * kStepFloats;
    const float* p = work.weights + first / 2 * kLanes;
    Ahead ahead = work.fetch.take((end - first) / 2 / kTileSteps, nullptr);
    fetch_lines(ahead);
    multiply_first<true>(v, p, work.tile.o + strip * kStrip * kLanes, held);
    for (int64_t at = first + kStrip; at < end; at += kStrip) {
      v += kStepFloats;
      p += kWords * kLanes;
      fetch_lines(ahead);
      multiply(v, p);
    }
  }

  // The same sums where some pair is hidden and some value is NaN or infinite: a hidden pair is
  // skipped by selection, because 0 * NaN would reach the row.
  static void values_selected(const Work& work, int64_t first, int64_t end) {
    const Float hidden = V::set(-kInfinity);
    if (end > work.keys.end) end = work.keys.end;
    for (int64_t d = 0; d < work.dim_v; ++d) {
      const float* const column =
          work.keys.v + d / kStrip * work.v_strip_floats + d % kStrip * kWords;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        float* const target = work.tile.o + d * kLanes + r * V::kLanes;
        Float acc = V::load(target);
        for (int64_t p = first; p < end; ++p) {
          const Float pair = V::set(column[p / kStrip * kStepFloats + p % kStrip / 2]);
          const Float weights = V::load(work.weights + p / 2 * kLanes + r * V::kLanes);
          const bool even = p % 2 == 0;
          const Float sum = V::fma(even ? V::even_half(pair) : V::odd_half(pair),
                                   even ? V::even_half(weights) : V::odd_half(weights), acc);
          acc = work.terms == nullptr
                    ? sum
                    : V::select(V::equal(V::load(work.terms + p * kLanes + r * V::kLanes), hidden),
                                acc, sum);
        }
        V::store(target, acc);
      }
    }
  }

  // Adds the values of keys first..end-1, whole strips.
  [[gnu::noinline]] static void add_values(const Work& work, int64_t first, int64_t end) {
    if (work.select_values) return values_selected(work, first, end);
    float* held = nullptr;
    for (int64_t strip = 0; strip < work.strips_v; ++strip) {
      value_strip(work, strip, first, end, held);
    }
    store_accumulators(held);
  }

  // ---- vectors ----

  static FOVEA_INLINE int64_t valid_keys(const Work& work, int64_t p) {
    return work.keys.end - p < kStrip ? work.keys.end - p : kStrip;
  }

  // Hides scores, and what is past the last key. Do the terms do no more than that?
  template <bool kMasked>
  static FOVEA_INLINE bool hide_scores(const Work& work, int64_t p) {
    float* const scores = scores_of(work, p);
    const Float hidden = V::set(-kInfinity);
    const int64_t valid = valid_keys(work, p);
    bool only_hide = true;
    if constexpr (kMasked) {
      const float* const terms = work.terms + p * kLanes;
      for (int64_t i = 0; i < valid * kLanes; i += V::kLanes) {
        const Float term = V::load(terms + i);
        const auto hides = V::equal(term, hidden);
        only_hide &= V::all(V::equal(V::select(hides, V::set(0.f), term), V::set(0.f)));
        V::store(scores + i, V::select(hides, hidden, V::load(scores + i)));
      }
    }
    for (int64_t i = valid * kLanes; i < kStrip * kLanes; i += V::kLanes) {
      V::store(scores + i, hidden);
    }
    return only_hide;
  }

  // Which lanes need a reference of the strip that starts at key p: those without one yet, or, when
  // `sums` are those of its weights, those whose weights are large. Moves it to the largest score,
  // and what was summed before with it; keys first..p-1 have weights but no values added.
  [[gnu::noinline]] static void move_reference(const Work& work, int64_t first, int64_t p,
                                               Float scale, const float* sums, float* sum) {
    Tile& tile = work.tile;
    const bool started = tile.started || p > work.keys.begin;
    if (first < p) add_values(work, first, p);
    const float* const scores = scores_of(work, p);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      Float largest = V::set(-kInfinity);
      if (work.terms == nullptr) {
        for (int64_t i = 0; i < kStrip; ++i) {
          largest = V::max(largest, V::load(scores + i * kLanes + r * V::kLanes));
        }
        largest = V::mul(largest, scale);
      } else {
        const float* const terms = work.terms + p * kLanes + r * V::kLanes;
        for (int64_t i = 0; i < valid_keys(work, p); ++i) {
          const Float s = V::mul(V::load(scores + i * kLanes + r * V::kLanes), scale);
          largest = V::max(largest, with_term<V>(s, V::load(terms + i * kLanes)));
        }
      }
      const Float old = V::load(tile.max + r * V::kLanes);
      const auto moves = sums == nullptr
                             ? V::equal(old, V::set(-kInfinity))
                             : V::less(V::set(kLargeSum), V::load(sums + r * V::kLanes));
      const Float reference = V::select(moves, largest, old);
      // A row that has seen no key yet: -inf - 0 gives a factor of 0, where -inf - -inf is NaN.
      const Float base = V::select(V::equal(reference, V::set(-kInfinity)), V::set(0.f), reference);
      // Exactly 1 where the reference stays.
      const Float change = V::select(V::equal(old, reference), V::set(1.f),
                                     simd::exp2_nonpositive<V>(V::sub(old, base)));
      V::store(tile.max + r * V::kLanes, reference);
      float* const running = tile.sum + r * V::kLanes;
      V::store(running, V::mul(V::load(running), change));
      float* const block_sum = sum + r * V::kLanes;
      V::store(block_sum, V::mul(V::load(block_sum), change));
      if (!started) continue;
      float* o = tile.o + r * V::kLanes;
      for (int64_t d = 0; d < work.dim_v; ++d, o += kLanes) {
        V::store(o, V::mul(V::load(o), change));
      }
    }
  }

  // Weights of the keys of one strip from their scores, kKeys at a time, and their sums.
  struct Exponentials {
    const float* score;
    float* weight;
    int64_t left = kUnits;
  };

  static FOVEA_INLINE void exponentials(Exponentials& at, int64_t units, Float scale,
                                        const Float (&base)[NR], Float (&sum)[NR]) {
    for (; units > 0 && at.left > 0; --units, --at.left) {
      Float x[kKeys * NR];
      FOVEA_UNROLL for (int i = 0; i < kKeys * NR; ++i) {
        x[i] = V::fma(V::load(at.score + i * V::kLanes), scale, V::neg(base[i % NR]));
      }
      simd::exp2_rough<V>(x);
      FOVEA_UNROLL for (int i = 0; i < kKeys / 2; ++i) {
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          const Float even = x[2 * i * NR + r], odd = x[(2 * i + 1) * NR + r];
          V::store(at.weight + i * kLanes + r * V::kLanes, V::pair(even, odd));
          sum[r] = V::add(sum[r], V::add(even, odd));
        }
      }
      at.score += kKeys * kLanes;
      at.weight += kKeys / 2 * kLanes;
    }
  }

  // Weights of the strip at key p by careful_exponent, and their sums, after the scores of the
  // strip kAhead keys on where that exists (`ahead`). Returns what is held.
  [[gnu::noinline]] static float* careful_strip(const Work& work, int64_t p, Float scale,
                                                bool ahead, float* held, float* sums) {
    if (ahead) score_strip(work, p + kAhead, held, [] {});
    const float* const scores = scores_of(work, p);
    const int64_t termed = work.terms == nullptr ? 0 : valid_keys(work, p);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      const Float reference = V::load(work.tile.max + r * V::kLanes);
      const auto none = V::equal(reference, V::set(-kInfinity));
      const Float base = V::select(none, V::set(0.f), reference);
      Float sum = V::set(0.f);
      for (int64_t i = 0; i < kStrip; i += 2) {
        Float x[2];
        FOVEA_UNROLL for (int odd = 0; odd < 2; ++odd) {
          const int64_t at = (i + odd) * kLanes + r * V::kLanes;
          const bool has_term = i + odd < termed;
          const Float term = has_term ? V::load(work.terms + p * kLanes + at) : V::set(0.f);
          x[odd] = careful_exponent<V>(V::load(scores + at), scale, term, base);
        }
        simd::exp2_rough<V>(x);
        V::store(work.weights + (p + i) / 2 * kLanes + r * V::kLanes, V::pair(x[0], x[1]));
        sum = V::add(sum, V::add(x[0], x[1]));
      }
      V::store(sums + r * V::kLanes, sum);
    }
    return held;
  }

  template <bool kMasked>
  static FOVEA_INLINE void strips(const Work& work, Float scale) {
    const KeyRange& keys = work.keys;
    Tile& tile = work.tile;
    alignas(64) float sums[kLanes], strip_sums[kLanes];
    Float sum[NR], base[NR];
    bool unset = false;  // some lane has no reference
    bool large_reference = false;
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) sum[r] = V::set(0.f);
    int64_t first = keys.begin;  // the first key whose values are not added yet

    const auto set_base = [&]() __attribute__((always_inline)) {
      unset = large_reference = false;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        const Float reference = V::load(tile.max + r * V::kLanes);
        const auto none = V::equal(reference, V::set(-kInfinity));
        unset |= none != 0;
        base[r] = V::select(none, V::set(0.f), reference);
        large_reference |= !V::all(rounds_once<V>(base[r]));
      }
    };
    set_base();
    const auto move = [&](int64_t p, const float* of) __attribute__((always_inline)) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) V::store(sums + r * V::kLanes, sum[r]);
      move_reference(work, first, p, scale, of, sums);
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) sum[r] = V::load(sums + r * V::kLanes);
      first = p;
      set_base();
    };

    const auto carefully = [&](int64_t p, bool ahead, float* now, Float(&of)[NR])
        __attribute__((always_inline)) {
      now = careful_strip(work, p, scale, ahead, now, strip_sums);
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) of[r] = V::load(strip_sums + r * V::kLanes);
      return now;
    };

    // Scores are computed kAhead keys before they are read: loads wait for a tile's stores.
    float* held = nullptr;
    for (int64_t p = keys.begin; p < keys.end && p < keys.begin + kAhead; p += kStrip) {
      score_strip(work, p, held, [] {});
    }
    const int64_t share = kUnits / (work.depth + 1) + 1;
    for (int64_t p = keys.begin; p < keys.end; p += kStrip) {
      if (p + kAhead >= keys.end) store_accumulators(held);
      bool only_hide = true;
      if (kMasked || p + kStrip > keys.end) only_hide = hide_scores<kMasked>(work, p);
      if (unset) {
        store_accumulators(held);
        move(p, nullptr);
      }
      const Exponentials begin{scores_of(work, p), work.weights + p / 2 * kLanes};
      Exponentials at = begin;
      Float strip_sum[NR];
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) strip_sum[r] = V::set(0.f);
      if (large_reference || !only_hide) {
        held = carefully(p, p + kAhead < keys.end, held, strip_sum);
      } else {
        if (p + kAhead < keys.end) {
          score_strip(
              work, p + kAhead, held, [&]() __attribute__((always_inline)) {
                exponentials(at, share, scale, base, strip_sum);
              });
        }
        exponentials(at, at.left, scale, base, strip_sum);
      }
      bool large = false;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        large |= V::less(V::set(kLargeSum), strip_sum[r]) != 0;
      }
      if (large) {
        store_accumulators(held);
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          V::store(strip_sums + r * V::kLanes, strip_sum[r]);
          strip_sum[r] = V::set(0.f);
        }
        move(p, strip_sums);
        if (large_reference || !only_hide) {
          carefully(p, false, nullptr, strip_sum);
        } else {
          at = begin;
          exponentials(at, kUnits, scale, base, strip_sum);
        }
      }
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) sum[r] = V::add(sum[r], strip_sum[r]);
    }
    add_values(work, first, (keys.end + kStrip - 1) / kStrip * kStrip);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      float* const target = tile.sum + r * V::kLanes;
      V::store(target, V::add(V::load(target), sum[r]));
    }
  }

  // Everything one tile does with one block.
  [[gnu::noinline]] static void block(const Params& params, const Geometry& geometry, Tile& tile,
                                      const KeyRange& keys, const float* terms, bool select_values,
                                      FetchQueue& fetch, float* scores) {
    const int64_t strips_v = (params.dim_v + kStrip - 1) / kStrip;
    if (!tile.started) {
      for (int64_t i = 0; i < strips_v * kStrip * kLanes; i += V::kLanes) {
        V::store(tile.o + i, V::set(0.f));
      }
    }
    const Work work{.tile = tile,
                    .keys = keys,
                    .weights = scores,
                    .scores = scores + kMaxBlockKeys / 2 * kLanes,
                    .depth = packed_words<P>(params.head_dim) / kWords,
                    .strips_v = strips_v,
                    .v_strip_floats = geometry.v_strip_floats,
                    .dim_v = params.dim_v,
                    .terms = terms,
                    .select_values = select_values,
                    .fetch = fetch};
    const Float scale = V::set(params.scale * kLog2E);
    if (terms != nullptr) {
      strips<true>(work, scale);
    } else {
      strips<false>(work, scale);
    }
    tile.started = true;
  }
};

}  // namespace fovea::cpu_flash

#endif
