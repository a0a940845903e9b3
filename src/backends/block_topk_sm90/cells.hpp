// Sizes that the host and the kernels share.
#pragma once

namespace fovea::block_topk_sm90 {

/// Tokens that are averaged before scores are taken.
inline constexpr int kCellTokens = 16;
/// Cells that are multiplied at once, a group.
inline constexpr int kQueryCells = 64, kKeyCells = 128;
/// Factors of a group in the workspace: one for each block, room for blocks of 64 tokens.
inline constexpr int kQueryFactors = kQueryCells / 4, kKeyFactors = kKeyCells / 4;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
/// Elements of a cell's row in the workspace.
constexpr int padded_dim(int head_dim) { return head_dim > 64 ? 128 : 64; }

}  // namespace fovea::block_topk_sm90
