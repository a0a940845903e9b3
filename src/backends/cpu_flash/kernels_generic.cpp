// cpu_flash kernels for generic. Only plain data and force-inlined code may be included here.
#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/vec_generic.hpp"

namespace fovea::cpu_flash {

const KernelTable* generic_f32_kernels() {
  static constexpr KernelTable kTable =
      make_kernels<F32Products<simd::generic::Vec>>("generic.f32");
  return &kTable;
}

}  // namespace fovea::cpu_flash
