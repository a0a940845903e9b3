// cpu_flash kernels for neon. Only plain data and force-inlined code may be included here.
#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/vec_neon.hpp"

namespace fovea::cpu_flash {

#if defined(__aarch64__)

const KernelTable* neon_f32_kernels() {
  static constexpr KernelTable kTable = make_kernels<F32Products<simd::neon::Vec>>("neon.f32");
  return &kTable;
}

#else

const KernelTable* neon_f32_kernels() { return nullptr; }

#endif

}  // namespace fovea::cpu_flash
