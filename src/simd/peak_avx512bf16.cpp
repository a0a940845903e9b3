#include "src/simd/peak.hpp"
#include "src/simd/peak_loop.hpp"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace fovea::simd {

#if defined(__AVX512BF16__)
namespace {
FOVEA_PEAK_LOOP(avx512bf16_loop, __m512, vdpbf16, 64, 16)
}  // namespace
PeakLoop avx512bf16_bf16_peak() noexcept { return avx512bf16_loop; }
#else
PeakLoop avx512bf16_bf16_peak() noexcept { return nullptr; }
#endif

}  // namespace fovea::simd
