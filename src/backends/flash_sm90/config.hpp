// From a problem's sizes to the kernel instance that serves it. Pure host code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/flash_sm90/instances.hpp"

namespace fovea::flash_sm90 {

struct Problem {
  Precision precision = Precision::bf16;
  std::int64_t batch = 1;  // batch items, or packed documents
  std::int64_t heads_q = 1, heads_kv = 1;
  std::int64_t seq_q = 0, seq_kv = 0;  // rows of the axes; packed: all documents together
  std::int64_t max_seq_q = 0;          // packed: longest document's queries (else ignored)
  std::int64_t head_dim = 128, dim_v = 128;
  bool lengths = false;                                   // kv_lengths given
  bool packed = false;                                    // cu_seqlens given
  bool key_bits = false;                                  // a bool mask [batch, heads, 1, seq_kv]
  std::int64_t key_mask_batches = 1, key_mask_heads = 1;  // 1 where broadcast
  bool band = false;                                      // causal or window
  std::int64_t window_left = -1, window_right = -1;       // -1 = unbounded
  bool list = false;                                      // block lists
  int list_block_q = 128, list_block_kv = 128;            // tokens of a block: 64 or 128
  bool out_float = false;
  int multiprocessors = 0;  // use at most so many; 0: all
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// More than any Hopper part has; workspaces are sized for it before the device is known.
inline constexpr int kMaxMultiprocessors = 144;

/// Why a problem is refused; `none` when it is served.
enum class Refusal : std::uint8_t {
  none,
  head_dim,     // not a multiple of 8, or above 256
  dim_v,        // likewise
  heads,        // heads_q not a multiple of heads_kv
  size,         // sizes beyond 31-bit coordinates
  combination,  // masks that exclude each other
};

struct Choice {
  Refusal refusal = Refusal::none;
  Key key{};
  std::size_t workspace_bytes = 0;
};

Choice choose(const Problem& problem);

/// Workspace sections, in bytes from its start.
struct WorkspaceLayout {
  std::size_t ready = 0, partial = 0, next_item = 0, key_counts = 0, key_entries = 0, key_bits = 0;
  std::size_t total = 0;
};
WorkspaceLayout workspace_layout(const Problem& problem, const Key& key);

}  // namespace fovea::flash_sm90
