#include "src/simd/peak.hpp"
#include "src/simd/peak_loop.hpp"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace fovea::simd {

#if defined(__AVX512F__)
namespace {
FOVEA_PEAK_LOOP(avx512_loop, __m512, vfmadd, 32, 12)
}  // namespace
PeakLoop avx512_f32_peak() noexcept { return avx512_loop; }
#else
PeakLoop avx512_f32_peak() noexcept { return nullptr; }
#endif

}  // namespace fovea::simd
