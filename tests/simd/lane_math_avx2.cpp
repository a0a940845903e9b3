#include "src/simd/vec_avx2.hpp"
#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
LaneMath lane_math_avx2() { return lane_math<avx2::Vec>(Isa::avx2); }
#else
LaneMath lane_math_avx2() { return {}; }
#endif

}  // namespace fovea::simd::testing
