// What the host hands to the kernel. Plain data, no CUDA headers.
#pragma once

#include <cstdint>

namespace fovea::flash_sm90 {

/// Division by a launch constant as a multiplication: exact while dividend * divisor < 2^32.
struct Divisor {
  std::uint32_t value = 1;
  std::uint32_t magic = 0;
};
constexpr Divisor make_divisor(std::uint32_t value) {
  return {value, value > 1 ? 0xFFFFFFFFu / value + 1 : 0};
}

/// "Set" in the flags through which pieces of a tile find each other. Launches leave flags cleared,
/// and memory that held something else does not read as this value, so the workspace needs no
/// preparation.
inline constexpr std::uint64_t kPieceReady = 0x9E3779B97F4A7C15ull;

/// 32-bit words per block in the key bits; blocks hold at most 224 keys, the last word is the
/// packing kernel's.
inline constexpr int kKeyWords = 8;

struct Params {
  int seq_q = 0, seq_kv = 0;  // rows of the q and k/v axes; packed: of all documents together
  int batches = 0;            // batch items, or packed documents
  int blocks = 0;             // key blocks of the whole axis (Mask::none)
  int items = 0;     // work items: query tiles (per cluster); unknown to the host when packed
  Divisor heads;     // query heads
  Divisor kv_group;  // query heads per key head
  Divisor q_items;   // work items per (batch item, head)
  int waves = 0, rest = 0, pieces = 0;  // Mask::none, see work.cuh

  // Coordinates of panel n in the maps of q and k, and of v and out: column n * column_step, panel
  // n * panel_step; one copy moves all panels when panel_step is 1 (tensor_map.hpp).
  int qk_column_step = 0, qk_panel_step = 1;
  int v_column_step = 0, v_panel_step = 1;

  const void* k = nullptr;                          // for scores that are computed again
  std::int64_t k_batch = 0, k_row = 0, k_head = 0;  // element strides
  int head_dim = 0;

  float scale = 0, scale_log2 = 0;
  void* out = nullptr;                                    // for stores that bypass the tensor map
  std::int64_t out_batch = 0, out_row = 0, out_head = 0;  // element strides
  int dim_v = 0;
  int out_float = 0;     // float32 output
  float* lse = nullptr;  // [batch, heads, seq_q], packed [heads, tokens]

  const void* kv_lengths = nullptr;   // [batches], int32 or int64
  int kv_lengths_wide = 0;            // int64
  const int* cu_seqlens_q = nullptr;  // [batches + 1] when packed
  const int* cu_seqlens_kv = nullptr;
  int window_left = 0, window_right = 0;  // Mask::band: visible keys on either side of the diagonal

  const std::uint32_t* key_bits = nullptr;  // [key rows, key_blocks, kKeyWords]
  const int* key_entries =
      nullptr;  // [key rows, key_blocks]: blocks in visiting order, partial ones first
  const int* key_counts = nullptr;  // [key rows, 2]: entries (at least 1), partial ones among them
  int key_blocks = 0;
  int key_batch = 0, key_head = 0;  // key row = batch * key_batch + head * key_head
  int group_heads = 0;              // heads that share one key row and length

  const int* list_counts = nullptr;   // lists: per (batch, head, query tile)
  const int* list_indices = nullptr;  // key block numbers
  std::int64_t list_count_batch = 0, list_count_head = 0;
  std::int64_t list_index_batch = 0, list_index_head = 0, list_index_tile = 0;
  int* next_item = nullptr;  // lists: items drawn so far beyond each member's first

  float* partial = nullptr;        // [block, warpgroup, partial_floats]
  std::uint64_t* ready = nullptr;  // [block, warpgroup]

  int list_halves = 0;  // Source::small, Source::halves: 1 where a listed block has 128 keys
};

}  // namespace fovea::flash_sm90
