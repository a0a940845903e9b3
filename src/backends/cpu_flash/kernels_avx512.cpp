// cpu_flash kernels for avx512. Only plain data and force-inlined code may be included here.
#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/vec_avx512.hpp"

namespace fovea::cpu_flash {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

const KernelTable* avx512_f32_kernels() {
  static constexpr KernelTable kTable = make_kernels<F32Products<simd::avx512::Vec>>("avx512.f32");
  return &kTable;
}

#else

const KernelTable* avx512_f32_kernels() { return nullptr; }

#endif

}  // namespace fovea::cpu_flash
