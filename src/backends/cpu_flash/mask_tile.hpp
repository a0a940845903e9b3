// The terms that one tile of queries adds to its scores against one block of keys, as a panel
// [key][lanes] in units of log2; -infinity hides.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/elements.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash {

enum class TileMask { none, terms, all_hidden };

struct TileMaskResult {
  TileMask kind = TileMask::none;
  bool hides = false;  // some, not all, pairs are hidden
};

// Keys a row sees by position: row + low .. row + high, already clamped to what int64 holds.
struct Diagonal {
  bool bounded_low = false;
  bool bounded_high = false;
  int64_t low = 0;
  int64_t high = 0;
};

FOVEA_INLINE float clamp_to_lane(int64_t x) {
  return static_cast<float>(x < -1 ? -1 : x > 64 ? 64 : x);
}

// Adds one mask tensor to the panel, or fills the panel with it.
template <class V, class Elements>
void add_mask_rows(Elements, const Mask& mask, const Segment& segment, int64_t head_q, int64_t row,
                   int64_t rows, int64_t lanes, int64_t first_key, const BlockInfo& info,
                   int64_t begin, int64_t end, bool fill, float* panel) {
  const char* base =
      static_cast<const char*>(mask.data) +
      (segment.batch * mask.batch + head_q * mask.head + first_key) * Elements::kBytes;
  for (int64_t lane = 0; lane < lanes; lane += 4) {
    const char* source[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t r = lane + i < rows ? lane + i : rows - 1;
      source[i] = base + (row + r) * mask.row * Elements::kBytes;
    }
    int64_t p = begin;
    if (!info.compacted) {
      for (; p + 4 <= end; p += 4) {
        Quad x[4];
        FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
          x[i] = Elements::load(source[i] + p * Elements::kBytes);
        }
        simd::quad_transpose(x[0], x[1], x[2], x[3]);
        FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
          float* target = panel + (p + i) * lanes + lane;
          simd::quad_store(target, fill ? x[i] : Elements::apply(simd::quad_load(target), x[i]));
        }
      }
    }
    for (; p < end; ++p) {
      const int64_t key = info.compacted ? info.index[p] : p;
      Quad x = {};
      for (int i = 0; i < 4; ++i) x[i] = Elements::load_one(source[i] + key * Elements::kBytes);
      float* target = panel + p * lanes + lane;
      simd::quad_store(target, fill ? x : Elements::apply(simd::quad_load(target), x));
    }
  }
}

// What positions and biases per key give: the panel before any mask tensor.
template <class V, int NR>
void fill_positions(const Diagonal& diagonal, int64_t row, int64_t rows, int64_t block_key,
                    const BlockInfo& info, int64_t first_key, int64_t begin, int64_t end,
                    float* panel) {
  using Float = typename V::Float;
  constexpr int kLanes = NR * V::kLanes;
  const Float hidden_term = V::set(-kInfinity);
  Float lane_number[NR];
  FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
    alignas(64) float numbers[V::kLanes];
    for (int i = 0; i < V::kLanes; ++i) {
      const int lane = r * V::kLanes + i;
      numbers[i] = static_cast<float>(lane < rows ? lane : rows - 1);
    }
    lane_number[r] = V::load(numbers);
  }
  for (int64_t p = begin; p < end; ++p) {
    const int64_t offset = info.compacted ? info.index[p] : p;
    const int64_t key = block_key + offset;
    // The row of lane i is row + i; it sees the key iff first <= i <= last.
    const Float first =
        V::set(diagonal.bounded_high ? clamp_to_lane(key - diagonal.high - row) : -1.f);
    const Float last =
        V::set(diagonal.bounded_low ? clamp_to_lane(key - diagonal.low - row) : 64.f);
    const Float term = V::set(offset < first_key ? -kInfinity : info.biased ? info.bias[p] : 0.f);
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
      Float x = V::select(V::less(lane_number[r], first), hidden_term, term);
      x = V::select(V::less(last, lane_number[r]), hidden_term, x);
      V::store(panel + p * kLanes + r * V::kLanes, x);
    }
  }
}

// Fills panel rows begin..end-1. `row` is the tile's first row in the segment, `block_key` the
// first key of the block; keys of the block before `first_key` are hidden.
template <class V, int NR>
TileMaskResult build_mask_tile(const Params& params, const Geometry& geometry,
                               const Segment& segment, const Diagonal& diagonal, int64_t head_q,
                               int64_t row, int64_t rows, int64_t block_key, const BlockInfo& info,
                               int64_t first_key, int64_t begin, int64_t end, float* panel) {
  using Float = typename V::Float;
  constexpr int kLanes = NR * V::kLanes;
  const Float hidden_term = V::set(-kInfinity);

  // Without bounds and biases the first mask is all there is.
  bool fill = !diagonal.bounded_low && !diagonal.bounded_high && info.biased == 0 && first_key == 0;
  if (!fill) {
    fill_positions<V, NR>(diagonal, row, rows, block_key, info, first_key, begin, end, panel);
  }

  for (int32_t m = 0; m < params.num_masks; ++m) {
    if ((geometry.key_masks >> m & 1u) != 0) continue;
    const Mask& mask = params.masks[m];
    visit_mask_type<V>(
        mask.type, [&](auto elements) __attribute__((always_inline)) {
          add_mask_rows<V>(elements, mask, segment, head_q, row, rows, kLanes, block_key, info,
                           begin, end, fill, panel);
        });
    fill = false;
  }

  Float hidden_count = V::set(0.f), neutral_count = V::set(0.f);
  for (int64_t i = begin * NR; i < end * NR; ++i) {
    const Float x = V::load(panel + i * V::kLanes);
    const Float one = V::set(1.f), zero = V::set(0.f);
    hidden_count = V::add(hidden_count, V::select(V::equal(x, hidden_term), one, zero));
    neutral_count = V::add(neutral_count, V::select(V::equal(x, zero), one, zero));
  }
  alignas(64) float counts[2][V::kLanes];
  V::store(counts[0], hidden_count);
  V::store(counts[1], neutral_count);
  float hidden = 0.f, neutral = 0.f;
  for (int i = 0; i < V::kLanes; ++i) {
    hidden += counts[0][i];
    neutral += counts[1][i];
  }
  const float all = static_cast<float>((end - begin) * kLanes);
  TileMaskResult result;
  result.kind = neutral == all  ? TileMask::none
                : hidden == all ? TileMask::all_hidden
                                : TileMask::terms;
  result.hides = hidden > 0.f;
  return result;
}

}  // namespace fovea::cpu_flash
