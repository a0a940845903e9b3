#include "src/simd/vec_avx512.hpp"
#include "tests/simd/exp2_lanes.hpp"

namespace fovea::simd::testing {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
Exp2Array exp2_avx512() { return exp2_array<avx512::Vec>; }
Exp2Array exp2_rough_avx512() { return exp2_array<avx512::Vec, true>; }
#else
Exp2Array exp2_avx512() { return nullptr; }
Exp2Array exp2_rough_avx512() { return nullptr; }
#endif

}  // namespace fovea::simd::testing
