#include "src/simd/vec_generic.hpp"
#include "tests/simd/exp2_lanes.hpp"

namespace fovea::simd::testing {

Exp2Array exp2_generic() { return exp2_array<generic::Vec>; }

}  // namespace fovea::simd::testing
