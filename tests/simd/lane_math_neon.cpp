#include "src/simd/vec_neon.hpp"
#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {

#if defined(__aarch64__)
LaneMath lane_math_neon() { return lane_math<neon::Vec>(Isa::neon); }
#else
LaneMath lane_math_neon() { return {}; }
#endif

}  // namespace fovea::simd::testing
