// A matrix tile of 16-bit elements in shared memory: panels of `kPanelColumns` columns, each row of a
// panel 128 bytes (64 columns) or 64 bytes (32 columns), stored with the swizzle of the same width
// that tensor copies, wgmma descriptors and the functions below agree on.
#pragma once

#include "cuda/ptx.cuh"

namespace fovea::cuda {

template <int kPanelColumns>
struct Tile {
  static_assert(kPanelColumns == 64 || kPanelColumns == 32);
  static constexpr uint32_t kRowBytes = kPanelColumns * 2;
  static constexpr int kRowChunks = kPanelColumns / 8;  // 16-byte units
  static constexpr int kStepsPerPanel = kPanelColumns / 16;

  static constexpr uint32_t panel_bytes(int rows) { return rows * kRowBytes; }

  /// XOR applied to the chunk index of a row.
  FOVEA_DEVICE static uint32_t swizzle(uint32_t row) {
    return kPanelColumns == 64 ? row & 7 : (row >> 1) & 3;
  }
  /// Byte offset of 16-byte chunk `chunk` (over all panels) of `row` in a tile of `rows` rows.
  FOVEA_DEVICE static uint32_t offset(uint32_t row, uint32_t chunk, int rows) {
    return chunk / kRowChunks * (rows * kRowBytes) + row * kRowBytes +
           (((chunk % kRowChunks) ^ swizzle(row)) << 4);
  }

  // wgmma descriptors. The high word (stride byte offset of eight rows, swizzle mode) is constant.
  static constexpr uint32_t kDescriptorHigh =
      ((8 * kRowBytes) >> 4) | (kPanelColumns == 64 ? 1u << 30 : 2u << 30);
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
