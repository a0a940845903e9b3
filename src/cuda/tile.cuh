// A matrix tile of 16-bit elements in shared memory: panels of 64 columns, each row of a panel 128
// bytes, with the 128-byte swizzle that tensor copies, wgmma descriptors and the functions below
// agree on.
#pragma once

#include "src/cuda/ptx.cuh"

namespace fovea::cuda {

struct Tile {
  static constexpr int kColumns = 64;
  static constexpr uint32_t kRowBytes = 128;
  static constexpr int kRowChunks = 8;      // 16-byte units
  static constexpr int kStepsPerPanel = 4;  // of 16 columns

  static constexpr uint32_t panel_bytes(int rows) { return rows * kRowBytes; }

  /// Byte offset of 16-byte chunk `chunk` (over all panels) of `row` in a tile of `rows` rows.
  FOVEA_DEVICE static uint32_t offset(uint32_t row, uint32_t chunk, int rows) {
    return chunk / kRowChunks * (rows * kRowBytes) + row * kRowBytes +
           (((chunk % kRowChunks) ^ (row % 8)) << 4);
  }

  // wgmma descriptors. The high word (stride byte offset of eight rows, swizzle mode) is constant.
  static constexpr uint32_t kDescriptorHigh = (8 * kRowBytes) >> 4 | 1u << 30;
  /// Low word. `panel_stride` is the leading byte offset, read only for operands whose columns span
  /// panels (V). The address is masked: inside a cluster a block's own shared addresses carry its
  /// rank in bits 24 and up.
  FOVEA_DEVICE static uint32_t descriptor_low(uint32_t address, uint32_t panel_stride) {
    return ((address & 0x3FFFF) >> 4) | ((panel_stride >> 4) << 16);
  }
  FOVEA_DEVICE static uint64_t descriptor(uint32_t low) {
    uint64_t r;
    asm("mov.b64 %0, {%1, %2};" : "=l"(r) : "r"(low), "r"(kDescriptorHigh));
    return r;
  }
};

}  // namespace fovea::cuda
