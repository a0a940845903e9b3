#include "src/simd/peak.hpp"
#include "src/simd/quad.hpp"

namespace fovea::simd {

namespace {

// Multiply and add are separate instructions here: six chains of each.
uint64_t generic_loop(int64_t iterations) {
  Quad product[6], sum[6];
  FOVEA_UNROLL for (int i = 0; i < 6; ++i) product[i] = sum[i] = Quad{};
  for (int64_t n = 0; n < iterations; ++n) {
    FOVEA_UNROLL for (int i = 0; i < 6; ++i) {
      product[i] = product[i] * product[i];
      sum[i] = sum[i] + sum[i];
      asm volatile("" : "+m"(product[i]), "+m"(sum[i]));
    }
  }
  return static_cast<uint64_t>(iterations) * 12 * 4;
}

}  // namespace

PeakLoop generic_f32_peak() noexcept { return generic_loop; }

}  // namespace fovea::simd
