#include "src/simd/vec_generic.hpp"
#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {

LaneMath lane_math_generic() { return lane_math<generic::Vec>(Isa::generic); }

}  // namespace fovea::simd::testing
