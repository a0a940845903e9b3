// cpu_flash kernels for avx2. Only plain data and force-inlined code may be included here.
#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/vec_avx2.hpp"

namespace fovea::cpu_flash {

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

const KernelTable* avx2_f32_kernels() {
  static constexpr KernelTable kTable = make_kernels<F32Products<simd::avx2::Vec>>("avx2.f32");
  return &kTable;
}

#else

const KernelTable* avx2_f32_kernels() { return nullptr; }

#endif

}  // namespace fovea::cpu_flash
