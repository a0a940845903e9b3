#include "src/simd/peak.hpp"
#include "src/simd/tiles_amx.hpp"

namespace fovea::simd {

#if defined(FOVEA_TILES_AMX)
namespace {

// Four accumulators of zeros: enough to cover the latency of the product.
uint64_t amx_loop(int64_t iterations) {
  constexpr uint64_t kOperations = 16 * 16 * 32 * 2;
  amx::tiles_begin();
  amx::tile_zero<0>();
  amx::tile_zero<1>();
  amx::tile_zero<2>();
  amx::tile_zero<3>();
  amx::tile_zero<4>();
  amx::tile_zero<5>();
  for (int64_t i = 0; i < iterations; ++i) {
    amx::tile_dot<0, 4, 5>();
    amx::tile_dot<1, 4, 5>();
    amx::tile_dot<2, 4, 5>();
    amx::tile_dot<3, 4, 5>();
  }
  amx::tiles_end();
  return static_cast<uint64_t>(iterations) * 4 * kOperations;
}

// A tile product every 64 additions.
uint64_t amx_additions(int64_t iterations) {
  amx::tiles_begin();
  amx::tile_zero<0>();
  amx::tile_zero<4>();
  amx::tile_zero<5>();
  uint64_t x = 1, one = 1;
  asm volatile("" : "+r"(one));
  for (int64_t i = 0; i < iterations; ++i) {
    amx::tile_dot<0, 4, 5>();
    asm volatile(".rept 64\n\tadd %1,%0\n\t.endr" : "+r"(x) : "r"(one));
  }
  amx::tiles_end();
  return static_cast<uint64_t>(iterations) * 64;
}

}  // namespace
PeakLoop amx_bf16_peak() noexcept { return amx_loop; }
PeakLoop amx_clock() noexcept { return amx_additions; }
#else
PeakLoop amx_bf16_peak() noexcept { return nullptr; }
PeakLoop amx_clock() noexcept { return nullptr; }
#endif

}  // namespace fovea::simd
