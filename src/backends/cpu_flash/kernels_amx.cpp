// cpu_flash kernels for AMX. Only plain data and force-inlined code may be included here.
#include "src/backends/cpu_flash/attend_amx.hpp"
#include "src/backends/cpu_flash/pack_amx.hpp"

namespace fovea::cpu_flash {

#if defined(FOVEA_TILES_AMX)

namespace {

using Products = TileProducts<simd::amx::Vec>;

void attend_tiles(const Params& params, const Geometry& geometry, const Segment& segment,
                  int64_t head_q, int64_t row, int64_t rows, const PackedBlocks& packed,
                  float* scratch) {
  simd::amx::tiles_begin();
  attend<Products>(params, geometry, segment, head_q, row, rows, packed, scratch);
  simd::amx::tiles_end();
}

void attend_part_tiles(const Params& params, const Geometry& geometry, const Segment& segment,
                       int64_t head_q, int64_t row, int64_t rows, const PackedBlocks& packed,
                       int64_t first, int64_t end, float* scratch, float* part) {
  simd::amx::tiles_begin();
  attend_part<Products>(params, geometry, segment, head_q, row, rows, packed, first, end, scratch,
                        part);
  simd::amx::tiles_end();
}

constexpr KernelTable make_tile_kernels() {
  KernelTable table = make_kernels<Products>("amx.bf16");
  table.pack = pack_block_tiles<Products>;
  table.attend = attend_tiles;
  table.attend_part = attend_part_tiles;
  return table;
}

}  // namespace

const KernelTable* amx_bf16_kernels() {
  static constexpr KernelTable kTable = make_tile_kernels();
  return &kTable;
}

#else

const KernelTable* amx_bf16_kernels() { return nullptr; }

#endif

}  // namespace fovea::cpu_flash
