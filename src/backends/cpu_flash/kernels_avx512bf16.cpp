// cpu_flash kernels for AVX-512 with the bfloat16 dot product. Only plain data and force-inlined
// code may be included here.
#include "src/backends/cpu_flash/attend.hpp"
#include "src/simd/vec_avx512.hpp"

namespace fovea::cpu_flash {

#if defined(__AVX512BF16__)

const KernelTable* avx512bf16_f32_kernels() {
  static constexpr KernelTable kTable =
      make_kernels<F32Products<simd::avx512bf16::Vec>>("avx512bf16.f32");
  return &kTable;
}

const KernelTable* avx512bf16_bf16_kernels() {
  static constexpr KernelTable kTable =
      make_kernels<Bf16Products<simd::avx512bf16::Vec>>("avx512bf16.bf16");
  return &kTable;
}

#else

const KernelTable* avx512bf16_f32_kernels() { return nullptr; }
const KernelTable* avx512bf16_bf16_kernels() { return nullptr; }

#endif

}  // namespace fovea::cpu_flash
