// Tile registers of AMX: eight of 16 rows of 64 bytes, and the bfloat16 product of two of them.
#pragma once

// Clang 14 spells the macros without the underscore.
#if (defined(__AMX_TILE__) || defined(__AMXTILE__)) && \
    (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__AVX512BF16__)
#define FOVEA_TILES_AMX 1

#include "src/simd/vec_avx512.hpp"

namespace fovea::simd::amx {

// The vectors beside the tiles. Strips are two tiles high.
struct Vec : Avx512Bf16Vec<Vec> {
  static constexpr int kTileRows = 32;
};

inline constexpr int kTileWords = 16;  // 32-bit words of a row, and rows

// Tiles belong to the thread: configured before their use, then released, because what is in them
// would be saved at every switch between threads. (No object with a destructor: unwinding it would
// bring in symbols that are shared with other translation units.)
FOVEA_INLINE void tiles_begin() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const shapes;
  static_assert(sizeof(shapes) == 64);
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

FOVEA_INLINE void tiles_end() { asm volatile("tilerelease"); }

// Written out, because the compilers' own forms do not say that they read memory.
template <int kTile>
FOVEA_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
FOVEA_INLINE void tile_load(const float* rows, int64_t stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(rows), "r"(stride_bytes), "i"(kTile)
               : "memory");
}

// What is not read again soon and should leave L1 to the rest.
template <int kTile>
FOVEA_INLINE void tile_load_once(const float* rows, int64_t stride_bytes) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
               :
               : "r"(rows), "r"(stride_bytes), "i"(kTile)
               : "memory");
}

template <int kTile>
FOVEA_INLINE void tile_store(float* rows, int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(rows), "r"(stride_bytes), "i"(kTile)
               : "memory");
}

// c[i][n] += the sum over words k of a[i][k] * b[k][n], each a pair of bfloat16.
template <int kC, int kA, int kB>
FOVEA_INLINE void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace fovea::simd::amx

#endif
