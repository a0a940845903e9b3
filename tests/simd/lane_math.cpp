#include "tests/simd/lane_math.hpp"

namespace fovea::simd::testing {

LaneMathList runnable_lane_math() {
  LaneMathList list;
  for (const LaneMath& math :
       {lane_math_generic(), lane_math_avx2(), lane_math_avx512(), lane_math_neon()}) {
    if (math.exp2 != nullptr && includes(probe_isa(), math.isa)) list.items[list.count++] = math;
  }
  return list;
}

}  // namespace fovea::simd::testing
