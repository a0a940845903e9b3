// How the cells of a head lie in the workspace: groups of 64 queries and of 128 keys as tiles that
// wgmma reads, so that a group is one bulk copy. Rows are in an order that leaves a pair of blocks
// to few threads: with the accumulators of src/cuda/wgmma.cuh a thread has all columns of its
// blocks of keys.
#pragma once

#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/cuda/tile.cuh"

namespace fovea::block_topk_sm90 {

template <int kDim, int kCells>
struct Arrangement {
  /// Rows of cell `cell` of a group: accumulator row g + 8h of a warp's 16 is cell 2(g % (C/2)) + h
  /// of its block g / (C/2), and column 8j + 2c + e is cell 2(j % (C/2)) + e of block
  /// 4(j / (C/2)) + c.
  FOVEA_DEVICE static int query_row(int cell) {
    const int in_warp = cell % 16, block = in_warp / kCells, i = in_warp % kCells;
    return cell - in_warp + block * (kCells / 2) + i / 2 + i % 2 * 8;
  }
  FOVEA_DEVICE static int key_row(int cell) {
    const int block = cell / kCells, i = cell % kCells;
    return 8 * (block / 4 * (kCells / 2) + i / 2) + 2 * (block % 4) + i % 2;
  }
  /// Byte offset of eight elements of a cell, from the first cell of its head on.
  FOVEA_DEVICE static long long query_offset(int cell, int chunk) {
    return static_cast<long long>(cell / kQueryCells * kQueryCells) * (2 * kDim) +
           cuda::Tile::offset(query_row(cell % kQueryCells), chunk, kQueryCells);
  }
  FOVEA_DEVICE static long long key_offset(int cell, int chunk) {
    return static_cast<long long>(cell / kKeyCells * kKeyCells) * (2 * kDim) +
           cuda::Tile::offset(key_row(cell % kKeyCells), chunk, kKeyCells);
  }
  /// Position of the factor of a block, from the first one of its head on.
  FOVEA_DEVICE static int query_factor(int block) {
    constexpr int kBlocks = kQueryCells / kCells;
    return block / kBlocks * kQueryFactors + block % kBlocks;
  }
  FOVEA_DEVICE static int key_factor(int block) {
    constexpr int kBlocks = kKeyCells / kCells;
    return block / kBlocks * kKeyFactors + block % kBlocks;
  }
};

}  // namespace fovea::block_topk_sm90
