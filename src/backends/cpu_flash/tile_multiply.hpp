// The register tile both products are made of, and the arithmetic of its elements.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/params.hpp"
#include "src/backends/cpu_flash/tile.hpp"
#include "src/simd/quad.hpp"

namespace fovea::cpu_flash {

// float32 products; every dtype is widened when it is packed.
template <class V>
struct F32Products {
  using Vec = V;
  using Float = typename V::Float;
  static constexpr int kGroup = 1;
  static constexpr int kDepth = 1;
  static constexpr FloatType kProducts = FloatType::f32;
  static FOVEA_INLINE Float multiply_add(Float a, Float b, Float c) { return V::fma(a, b, c); }
};

// bfloat16 products of pairs, summed in float32.
template <class V>
struct Bf16Products {
  using Vec = V;
  using Float = typename V::Float;
  static constexpr int kGroup = 2;
  static constexpr int kDepth = 1;
  static constexpr FloatType kProducts = FloatType::bf16;
  static FOVEA_INLINE Float multiply_add(Float a, Float b, Float c) { return V::dot2(a, b, c); }
};

// What becomes of a finished register tile in memory.
enum class Finish {
  store,    // target = tile
  add,      // target += tile
  rescale,  // target = alpha * target + tile, one alpha per lane
};

// Steps of a register tile per branch, and per line that it fetches ahead.
inline constexpr int kTileSteps = 4;

// tile[i][r] = sum over j < n of strip[j][i] * panel[j][r], written to target[i][r]: a strip is
// kTileRows broadcast words per step, a panel is NR vectors of queries per step.
//
// A function of its own, with nothing but the tile alive: inside a larger one, compilers move part
// of the accumulators to the stack and the loop waits for memory. Four steps per branch, since a
// loop of 77 or 128 rounds is longer than branch predictors look ahead; the test
// cpu_flash_hot_loops counts instructions and finds spills.
template <class P, int NR, Finish kFinish>
[[gnu::noinline]] void tile_multiply(const float* strip, const float* panel, int64_t n,
                                     float* target, Ahead ahead, const float* alpha = nullptr) {
  using V = typename P::Vec;
  using Float = typename V::Float;
  constexpr int kRows = V::kTileRows;
  constexpr int kLanes = NR * V::kLanes;
  Float acc[kRows][NR];
  FOVEA_UNROLL for (int i = 0; i < kRows; ++i) {
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) acc[i][r] = V::set(0.f);
  }
  const auto step = [&](int at) __attribute__((always_inline)) {
    Float b[NR];
    FOVEA_UNROLL for (int r = 0; r < NR; ++r) b[r] = V::load(panel + at * kLanes + r * V::kLanes);
    FOVEA_UNROLL for (int i = 0; i < kRows; ++i) {
      const Float a = V::set(strip[at * kRows + i]);
      FOVEA_UNROLL for (int r = 0; r < NR; ++r) acc[i][r] = P::multiply_add(a, b[r], acc[i][r]);
    }
    // Keeps loads of the next step from moving up here, where no register is left for them.
    asm volatile("" ::: "memory");
  };
  constexpr int kSteps = kTileSteps;
  const char* fetch = static_cast<const char*>(ahead.at);
  for (; n >= kSteps; n -= kSteps) {
    __builtin_prefetch(fetch);
    fetch += ahead.step;
    FOVEA_UNROLL for (int at = 0; at < kSteps; ++at) step(at);
    strip += kSteps * kRows;
    panel += kSteps * kLanes;
  }
  // Kept a loop: peeled, it takes registers that the one above would have to save.
  FOVEA_NO_UNROLL for (; n > 0; --n) {
    step(0);
    strip += kRows;
    panel += kLanes;
  }
  FOVEA_UNROLL for (int r = 0; r < NR; ++r) {
    Float factor = V::set(0.f);
    if constexpr (kFinish == Finish::rescale) factor = V::load(alpha + r * V::kLanes);
    FOVEA_UNROLL for (int i = 0; i < kRows; ++i) {
      float* const at = target + i * kLanes + r * V::kLanes;
      Float x = acc[i][r];
      if constexpr (kFinish == Finish::add) x = V::add(V::load(at), x);
      if constexpr (kFinish == Finish::rescale) x = V::fma(factor, V::load(at), x);
      V::store(at, x);
    }
  }
}

}  // namespace fovea::cpu_flash
