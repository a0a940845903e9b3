// The boundary between the common code and the translation units built for one instruction set:
// plain data and function pointers only.
#pragma once

#include <cstdint>

#include "src/backends/cpu_flash/params.hpp"

namespace fovea::cpu_flash {

inline constexpr int64_t kMaxBlockKeys = 256;  // also the length of the inner level of every sum

// One batch item or one document.
struct Segment {
  int64_t batch = 0;    // index into batch strides, masks, block lists and kv_lengths
  int64_t q_begin = 0;  // first row within the q tensor
  int64_t q_length = 0;
  int64_t kv_begin = 0;
  int64_t kv_length = 0;
};

// What packing found out about one block of keys. Keys that no query may see are left out, the
// others move together.
struct BlockInfo {
  int32_t count = 0;        // packed keys
  int32_t compacted = 0;    // 1: key p of the block is key index[p], 0: it is key p
  int32_t biased = 0;       // 1: bias[p] applies
  int32_t v_nonfinite = 0;  // 1: some packed value is NaN or infinite
  uint16_t index[kMaxBlockKeys];
  float bias[kMaxBlockKeys];  // times log2(e), never an infinity of a finite mask value
};

// How the packed keys and values of one segment lie in memory.
struct Geometry {
  int64_t block_keys = 0;      // keys per block, at most kMaxBlockKeys
  int64_t block_capacity = 0;  // the same, rounded up to whole register tiles
  int64_t k_block_floats = 0;  // 32-bit words of one packed block
  int64_t v_block_floats = 0;
  int64_t v_strip_floats = 0;  // from one V strip to the next
  int64_t score_floats = 0;    // words of the score and of the mask panel of one tile
  int64_t tile_floats = 0;     // words of the q and o panels, row maxima and sums of one tile
  int32_t tiles = 0;           // tiles per superblock
  // Which masks depend only on the key, so that packing applies them (bit per mask).
  uint32_t key_masks = 0;
};

struct PackedBlocks {
  const float* k = nullptr;
  const float* v = nullptr;
  const BlockInfo* info = nullptr;
};

struct KernelTable {
  const char* name = nullptr;
  int32_t lanes = 0;                     // queries per vector
  int32_t tile_vectors = 0;              // vectors of queries per full tile
  int32_t tile_rows = 0;                 // keys, or columns of V, per register tile
  int32_t group = 0;                     // elements per 32-bit word along a dot product
  int32_t depth = 0;                     // words per step along a dot product
  FloatType dot_dtype = FloatType::f32;  // dtype of the products
  // Packs block `block` of one (segment, kv head).
  void (*pack)(const Params& params, const Geometry& geometry, const Segment& segment,
               int64_t head_kv, int64_t block, float* k, float* v, BlockInfo* info) = nullptr;
  // Computes `rows` rows from `row` (counted within the segment) of one query head.
  void (*attend)(const Params& params, const Geometry& geometry, const Segment& segment,
                 int64_t head_q, int64_t row, int64_t rows, const PackedBlocks& packed,
                 float* scratch) = nullptr;
  // The same rows, of one tile, over the blocks first..end-1 only; what it finds is left in `part`,
  // geometry.tile_floats long, for merge().
  void (*attend_part)(const Params& params, const Geometry& geometry, const Segment& segment,
                      int64_t head_q, int64_t row, int64_t rows, const PackedBlocks& packed,
                      int64_t first, int64_t end, float* scratch, float* part) = nullptr;
  // Adds `count` parts in their order, in place, and writes the rows.
  void (*merge)(const Params& params, const Geometry& geometry, const Segment& segment,
                int64_t head_q, int64_t row, int64_t rows, float* parts, int64_t count) = nullptr;
};

// Null where this build has no such kernel.
const KernelTable* generic_f32_kernels();
const KernelTable* avx2_f32_kernels();
const KernelTable* avx512_f32_kernels();
const KernelTable* avx512bf16_f32_kernels();
const KernelTable* avx512bf16_bf16_kernels();
const KernelTable* amx_bf16_kernels();
const KernelTable* neon_f32_kernels();

}  // namespace fovea::cpu_flash
