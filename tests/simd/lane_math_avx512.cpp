#include "src/simd/vec_avx512.hpp"
#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
LaneMath lane_math_avx512() { return lane_math<avx512::Vec>(Isa::avx512); }
#else
LaneMath lane_math_avx512() { return {}; }
#endif

}  // namespace fovea::simd::testing
