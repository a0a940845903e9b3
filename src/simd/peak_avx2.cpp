#include "src/simd/peak.hpp"
#include "src/simd/peak_loop.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace fovea::simd {

#if defined(__AVX2__) && defined(__FMA__)
namespace {
FOVEA_PEAK_LOOP(avx2_loop, __m256, vfmadd, 16, 12)
}  // namespace
PeakLoop avx2_f32_peak() noexcept { return avx2_loop; }
#else
PeakLoop avx2_f32_peak() noexcept { return nullptr; }
#endif

}  // namespace fovea::simd
