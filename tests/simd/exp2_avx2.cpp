#include "src/simd/vec_avx2.hpp"
#include "tests/simd/exp2_lanes.hpp"

namespace fovea::simd::testing {

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
Exp2Array exp2_avx2() { return exp2_array<avx2::Vec>; }
#else
Exp2Array exp2_avx2() { return nullptr; }
#endif

}  // namespace fovea::simd::testing
