// Warp-wide products of 16-bit tiles with float32 accumulators (mma.sync, sm_80 and newer), the
// loads that feed them, and asynchronous copies to shared memory.
//
// Accumulators of an m16n8 product: lane l owns rows l/4 (h = 0) and l/4 + 8 (h = 1); register
// 2h + e is column 2(l%4) + e. Packed in pairs, two neighbouring accumulator tiles are the A
// operand of the next product.
#pragma once

#include "src/cuda/precision.cuh"

namespace fovea::cuda {

/// D[16,8] += A[16,16] B[16,8].
template <class Type>
FOVEA_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
FOVEA_DEVICE void mma<Bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
FOVEA_DEVICE void mma<F16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices; lane l addresses row l % 8 of matrix l / 8.
FOVEA_DEVICE void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
FOVEA_DEVICE void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Copies 16 bytes past the registers; without `valid` writes zeros and reads nothing.
FOVEA_DEVICE void copy_async_16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
FOVEA_DEVICE void copy_async_4(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
/// All copies of this thread have landed.
FOVEA_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Hides where a value comes from: what follows from it is computed again in every iteration of a
/// loop and does not occupy registers across it.
FOVEA_DEVICE uint32_t opaque(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// A row-major tile of 16-bit elements in shared memory whose rows are permuted in units of 16
/// bytes, so that eight rows of any 16-byte column lie in different banks.
template <int kColumns>
struct MmaTile {
  static constexpr int kChunks = kColumns / 8;
  static constexpr uint32_t kRowBytes = kColumns * 2;
  static_assert(kChunks % 4 == 0);

  FOVEA_DEVICE static uint32_t offset(uint32_t row, uint32_t chunk) {
    if constexpr (kChunks % 8 == 0)
      return row * kRowBytes + ((chunk ^ (row % 8)) << 4);
    else  // neighbouring rows start half a line of banks apart
      return row * kRowBytes + (((chunk & ~3u) | ((chunk ^ (row / 2)) & 3u)) << 4);
  }
  /// The address of a chunk 2 * steps further right, from that of chunk 0 or 1 of a row; tiles
  /// start at multiples of a power of two no smaller than a row.
  FOVEA_DEVICE static uint32_t advance(uint32_t address, uint32_t steps) {
    if constexpr (kChunks % 8 == 0)
      return address ^ (steps * 32);
    else
      return (address ^ (steps % 2 * 32)) + steps / 2 * 64;
  }
};

}  // namespace fovea::cuda
