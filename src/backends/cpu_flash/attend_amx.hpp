// One tile of queries against one block of keys by AMX: the products of attend.hpp's loop as
// products of tile registers, four accumulators (32 keys or columns x 32 queries) at a time.
//
// Tile products and vector instructions use different pipes, so the work is issued interleaved:
//
//   strip s + 1:  S = K Q          tile products
//   strip s:      P = 2^(S - ref)  vectors
//   strips < s:   O += V P         tile products
//
// Two differences from the vector kernels make that possible. `ref`, what is subtracted, follows
// the row's maximum only when that is more than kSlack (in log2) above it: until then P is larger
// than 1, which costs no accuracy, and O needs no rescaling. And O accumulates in place, one level,
// which the contract asks to be two for float32 inputs only. A row still depends on nothing but
// itself.
#pragma once

#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/tiles_amx.hpp"

#if defined(__AMX_BF16__)

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
  static constexpr int64_t kRing = 4 * kStrip;
  static constexpr float kSlack = 8.f;
  static_assert(NR <= 2 && kStrip == 2 * kWords && V::kLanes == kWords);

  struct Work {
    Tile& tile;
    const KeyRange& keys;
    float* weights;  // P [pair of keys][lanes]
    float* scores;   // S [key][lanes], a ring of kRing keys
    int64_t depth;   // steps along head_dim
    int64_t strips_v;
    int64_t v_strip_floats;
    int64_t dim_v;
    const float* terms;  // null: none
    bool select_values;
    FetchQueue& fetch;
  };

  // Fetches ahead with one step of a product, a line for every kTileSteps words.
  static FOVEA_INLINE void fetch_lines(Ahead& ahead) {
    if (ahead.step == 0) return;
    const char* at = static_cast<const char*>(ahead.at);
    FOVEA_UNROLL for (int i = 0; i < kWords / kTileSteps; ++i) {
      __builtin_prefetch(at);
      at += ahead.step;
    }
    ahead.at = at;
  }

  // ---- tile products ----

  static FOVEA_INLINE void zero_accumulators() {
    simd::amx::tile_zero<0>();
    simd::amx::tile_zero<2>();
    if constexpr (NR == 2) {
      simd::amx::tile_zero<1>();
      simd::amx::tile_zero<3>();
    }
  }

  static FOVEA_INLINE void load_accumulators(const float* c) {
    simd::amx::tile_load<0>(c, kRowBytes);
    simd::amx::tile_load<2>(c + kWords * kLanes, kRowBytes);
    if constexpr (NR == 2) {
      simd::amx::tile_load<1>(c + kWords, kRowBytes);
      simd::amx::tile_load<3>(c + kWords * kLanes + kWords, kRowBytes);
    }
  }

  static FOVEA_INLINE void store_accumulators(float* c) {
    simd::amx::tile_store<0>(c, kRowBytes);
    if constexpr (NR == 2) simd::amx::tile_store<1>(c + kWords, kRowBytes);
    simd::amx::tile_store<2>(c + kWords * kLanes, kRowBytes);
    if constexpr (NR == 2) simd::amx::tile_store<3>(c + kWords * kLanes + kWords, kRowBytes);
  }

  // One step: `a` is 32 rows of a strip, `b` 16 words of the panel.
  static FOVEA_INLINE void multiply(const float* a, const float* b) {
    simd::amx::tile_load<6>(b, kRowBytes);
    simd::amx::tile_load<4>(a, 4 * kWords);
    simd::amx::tile_dot<0, 4, 6>();
    if constexpr (NR == 2) {
      simd::amx::tile_load<7>(b + kWords, kRowBytes);
      simd::amx::tile_dot<1, 4, 7>();
    }
    simd::amx::tile_load<5>(a + kWords * kWords, 4 * kWords);
    simd::amx::tile_dot<2, 5, 6>();
    if constexpr (NR == 2) simd::amx::tile_dot<3, 5, 7>();
  }

  // Scores of the strip that starts at key p; calls between() after every step.
  template <class Between>
  static FOVEA_INLINE void score_strip(const Work& work, int64_t p, Between&& between) {
    const float* k = work.keys.k + p * work.depth * kWords;
    const float* q = work.tile.q;
    Ahead ahead = work.fetch.take(work.depth * kWords / kTileSteps, nullptr);
    zero_accumulators();
    for (int64_t step = 0; step < work.depth; ++step) {
      fetch_lines(ahead);
      multiply(k, q);
      k += kStepFloats;
      q += kWords * kLanes;
      between();
    }
    store_accumulators(work.scores + p % kRing * kLanes);
  }

  // Columns of V strip `strip` by the weights of keys first..end-1, whole strips of keys.
  static FOVEA_INLINE void value_strip(const Work& work, int64_t strip, int64_t first,
                                       int64_t end) {
    float* const o = work.tile.o + strip * kStrip * kLanes;
    const float* v = work.keys.v + strip * work.v_strip_floats + first / kStrip * kStepFloats;
    const float* p = work.weights + first / 2 * kLanes;
    Ahead ahead = work.fetch.take((end - first) / 2 / kTileSteps, nullptr);
    load_accumulators(o);
    for (; first < end; first += kStrip) {
      fetch_lines(ahead);
      multiply(v, p);
      v += kStepFloats;
      p += kWords * kLanes;
    }
    store_accumulators(o);
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
    for (int64_t strip = 0; strip < work.strips_v; ++strip) value_strip(work, strip, first, end);
  }

  // ---- vectors ----

  // Largest scores of a strip. With terms, scores become final here; without, they stay unscaled.
  template <bool kMasked>
  static FOVEA_INLINE void strip_maxima(const Work& work, int64_t p, Float scale,
                                        Float (&max)[NR]) {
    float* const scores = work.scores + p % kRing * kLanes;
    const float* const terms = kMasked ? work.terms + p * kLanes : nullptr;
    const int64_t valid = work.keys.end - p < kStrip ? work.keys.end - p : kStrip;
    const Float hidden = V::set(-kInfinity);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) max[r] = hidden;
    for (int64_t i = 0; i < valid; ++i) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        float* const at = scores + i * kLanes + r * V::kLanes;
        Float s = V::load(at);
        if constexpr (kMasked) {
          const Float term = V::load(terms + i * kLanes + r * V::kLanes);
          s = V::select(V::equal(term, hidden), hidden, V::fma(s, scale, term));
          V::store(at, s);
        }
        max[r] = V::max(max[r], s);
      }
    }
    if constexpr (!kMasked) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) max[r] = V::mul(max[r], scale);
    }
    for (int64_t i = valid * kLanes; i < kStrip * kLanes; i += V::kLanes) {
      V::store(scores + i, hidden);
    }
  }

  // Moves the reference of the lanes whose maximum is far above it. Keys first..p-1 still have
  // weights relative to the old one, and no values added.
  [[gnu::noinline]] static void move_reference(const Work& work, int64_t first, int64_t p,
                                               const float* max, float* sum) {
    Tile& tile = work.tile;
    const bool started = tile.started || p > work.keys.begin;
    if (first < p) add_values(work, first, p);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      const Float old = V::load(tile.max + r * V::kLanes);
      const Float largest = V::load(max + r * V::kLanes);
      const Float reference =
          V::select(V::less(V::add(old, V::set(kSlack)), largest), largest, old);
      // A row that has seen no key yet: -inf - 0 gives a factor of 0, where -inf - -inf is NaN.
      const Float base = V::select(V::equal(reference, V::set(-kInfinity)), V::set(0.f), reference);
      // Exactly 1 where the reference stays.
      const Float factor = V::select(V::equal(old, reference), V::set(1.f),
                                     simd::exp2_nonpositive<V>(V::sub(old, base)));
      V::store(tile.max + r * V::kLanes, reference);
      float* const running = tile.sum + r * V::kLanes;
      V::store(running, V::mul(V::load(running), factor));
      float* const block_sum = sum + r * V::kLanes;
      V::store(block_sum, V::mul(V::load(block_sum), factor));
      if (!started) continue;
      float* o = tile.o + r * V::kLanes;
      for (int64_t d = 0; d < work.dim_v; ++d, o += kLanes) {
        V::store(o, V::mul(V::load(o), factor));
      }
    }
  }

  template <bool kMasked>
  static FOVEA_INLINE void strips(const Work& work, Float scale) {
    const KeyRange& keys = work.keys;
    Tile& tile = work.tile;
    const Float factor = kMasked ? V::set(1.f) : scale;
    alignas(64) float sums[kLanes], maxima[kLanes];
    Float sum[NR], base[NR], max[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) sum[r] = V::set(0.f);
    int64_t first = keys.begin;  // the first key whose values are not added yet

    const auto set_base = [&]() __attribute__((always_inline)) {
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        const Float reference = V::load(tile.max + r * V::kLanes);
        base[r] = V::select(V::equal(reference, V::set(-kInfinity)), V::set(0.f), reference);
      }
    };
    set_base();

    // Scores are computed kAhead strips before they are read: loads wait for a tile's stores.
    for (int64_t p = keys.begin; p < keys.end && p < keys.begin + kAhead; p += kStrip) {
      score_strip(work, p, [] {});
    }
    for (int64_t p = keys.begin; p < keys.end; p += kStrip) {
      strip_maxima<kMasked>(work, p, scale, max);
      bool far = false;
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
        const Float limit = V::add(V::load(tile.max + r * V::kLanes), V::set(kSlack));
        far |= V::less(limit, max[r]) != 0;
      }
      if (far) {
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
          V::store(sums + r * V::kLanes, sum[r]);
          V::store(maxima + r * V::kLanes, max[r]);
        }
        move_reference(work, first, p, maxima, sums);
        first = p;
        FOVEA_UNROLL for (int r = 0; r < NR; ++r) sum[r] = V::load(sums + r * V::kLanes);
        set_base();
      }

      const float* score = work.scores + p % kRing * kLanes;
      float* weight = work.weights + p / 2 * kLanes;
      int64_t left = kUnits;
      const auto exponentials = [&](int64_t units) __attribute__((always_inline)) {
        for (; units > 0 && left > 0; --units, --left) {
          Float x[kKeys * NR];
          FOVEA_UNROLL for (int i = 0; i < kKeys * NR; ++i) {
            x[i] = V::fma(V::load(score + i * V::kLanes), factor, V::neg(base[i % NR]));
          }
          simd::exp2_nonpositive<V>(x);
          FOVEA_UNROLL for (int i = 0; i < kKeys / 2; ++i) {
            FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
              const Float even = x[2 * i * NR + r], odd = x[(2 * i + 1) * NR + r];
              V::store(weight + i * kLanes + r * V::kLanes, V::pair(even, odd));
              sum[r] = V::add(sum[r], V::add(even, odd));
            }
          }
          score += kKeys * kLanes;
          weight += kKeys / 2 * kLanes;
        }
      };

      const int64_t share = kUnits / (work.depth + 1) + 1;
      if (p + kAhead < keys.end) score_strip(work, p + kAhead, [&] { exponentials(share); });
      exponentials(left);
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
