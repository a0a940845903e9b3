// The kernel instances that exist, as data. Host code without CUDA headers: a CPU-only build
// answers for a Hopper GPU from the same table that the launcher and the instantiations use.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::flash_sm90 {

enum class Precision : std::uint8_t { bf16, f16 };
/// What hides keys. `none`: only the end of the key axis. `lengths`: a key length per batch item or
/// packed document. `key_bits`: one bit per key and batch item (or head). `band`: causal or window,
/// any lengths, optionally key bits too.
enum class Mask : std::uint8_t { none, lengths, key_bits, band };
/// Which key blocks a query tile visits: all of them, or those of a caller's list. `list`: blocks
/// of 128 x 128. `pairs`: 128 queries x 64 keys, two blocks to a tile. `small`: 64 queries; a tile
/// is two blocks of 64 keys, or two halves of blocks of 128. `halves`: 128 queries, tiles of 64
/// keys, of which a block is one or two.
enum class Source : std::uint8_t { dense, list, pairs, small, halves };

struct Key {
  Precision precision;
  int head_dim;  // bucket: both head dimensions are at most this
  int block_kv;
  Mask mask;
  Source source;
  friend constexpr bool operator==(const Key&, const Key&) = default;
};

/// A key as one number, and back: nvcc does not take class values as template arguments of kernels.
constexpr std::uint32_t encode(const Key& key) {
  return static_cast<std::uint32_t>(key.head_dim) | static_cast<std::uint32_t>(key.block_kv) << 12 |
         static_cast<std::uint32_t>(key.precision) << 24 |
         static_cast<std::uint32_t>(key.mask) << 26 | static_cast<std::uint32_t>(key.source) << 28;
}
constexpr Key decode(std::uint32_t code) {
  return {static_cast<Precision>(code >> 24 & 3), static_cast<int>(code & 0xfff),
          static_cast<int>(code >> 12 & 0xfff), static_cast<Mask>(code >> 26 & 3),
          static_cast<Source>(code >> 28)};
}

/// How one instance is laid out on a multiprocessor. Everything follows from the key.
struct Schedule {
  int warpgroups;          // consumers, 64 query rows each
  int k_stages, v_stages;  // depth of the K and V rings; row pairs: of each row
  int q_stages;            // query buffers
  int cluster;             // blocks that share each K/V tile by multicast
  bool turns;              // warpgroups issue their products in turns
  bool staged_output;      // 16-bit O leaves through shared memory and tensor stores
  bool rescale_on_growth;  // rescale O only when a maximum grew noticeably
  int reference_step;      // a tile's reference is the maximum of every so-many-th group of 8 keys
  int early_exponentials;  // eighths computed before the wait for the previous P.V
  int first_exponentials;  // the same in the first block of a tile
  int producers;           // warpgroups that copy and hand out tasks
  int producer_registers;
  int consumer_registers;
};

constexpr Schedule schedule(const Key& key) {
  Schedule s{.warpgroups = 2,
             .k_stages = 2,
             .v_stages = 2,
             .q_stages = 2,
             .cluster = key.source == Source::dense && key.mask != Mask::band ? 2 : 1,
             .turns = key.head_dim < 256,
             .staged_output = true,
             .rescale_on_growth = false,
             .reference_step = 1,
             .early_exponentials = 8,
             .first_exponentials = 8,
             .producers = 1,
             .producer_registers = 40,
             .consumer_registers = 232};
  if (key.block_kv > 128) s.q_stages = 1;  // shared memory is full
  if (key.head_dim == 128 && key.source == Source::dense) {
    s.reference_step = 4;
    s.first_exponentials = 4;
  }
  if (key.source == Source::small) {  // a row of blocks for each consumer, see row_pair.cuh
    s.producers = 2;
    s.consumer_registers = 216;
    if (key.head_dim > 64) {  // shared memory is full
      s.q_stages = s.k_stages = 1;
      s.staged_output = false;
    }
  } else if (key.head_dim == 64 && key.source != Source::dense) {  // list rows are 128 queries
    s.rescale_on_growth = true;
    s.early_exponentials = 3;
  } else if (key.head_dim == 64 || (key.head_dim == 96 && key.block_kv < 128)) {
    // Three fill each other's gaps.
    s.warpgroups = 3;
    s.cluster = 1;
    s.staged_output = key.head_dim == 64;  // shared memory is full
    s.rescale_on_growth = true;
    s.early_exponentials = 3;
    s.producer_registers = key.mask == Mask::none ? 32 : 40;
    s.consumer_registers = key.mask == Mask::none ? 160 : 152;
  } else if (key.head_dim == 256) {  // O alone takes 128 registers, and shared memory is full
    s.q_stages = 1;
    s.staged_output = false;
    s.rescale_on_growth = true;
  }
  return s;
}

/// Query rows of a work item, and of a task in it: a row of blocks where lists are given.
constexpr int item_rows(const Key& key) {
  return 64 * schedule(key).warpgroups * schedule(key).cluster;
}
constexpr int block_q(const Key& key) {
  return key.source == Source::small ? 64 : 64 * schedule(key).warpgroups;
}

inline constexpr std::array kHeadDims = {64, 96, 128, 256};
/// Keys of a tile of block lists, and of Source::halves.
inline constexpr int kListBlock = 128;
inline constexpr int kHalfBlock = 64;
/// Keys per block of a second instance for long key axes; 0: there is none.
constexpr int long_block(int head_dim) { return head_dim == 128 ? 160 : head_dim == 96 ? 112 : 0; }

namespace detail {
/// Keys per block: as many as registers and shared memory allow.
constexpr int block_kv(int head_dim, Mask mask) {
  switch (head_dim) {
    case 64:
      return mask == Mask::none ? 128 : mask == Mask::lengths ? 112 : 96;
    case 96:
    case 128:
      return 128;
    default:
      return mask == Mask::band ? 64 : 80;
  }
}
constexpr auto make_instances() {
  constexpr std::array masks = {Mask::none, Mask::lengths, Mask::key_bits, Mask::band};
  std::array<Key, 2 * (4 * 4 + 2 + 3 * 3 + 1)> keys{};
  std::size_t n = 0;
  for (Precision precision : {Precision::bf16, Precision::f16}) {
    for (int head_dim : kHeadDims)
      for (Mask mask : masks)
        keys[n++] = {precision, head_dim, block_kv(head_dim, mask), mask, Source::dense};
    for (int head_dim : {96, 128})
      keys[n++] = {precision, head_dim, long_block(head_dim), Mask::none, Source::dense};
    for (int head_dim : {64, 96, 128})
      for (Source source : {Source::list, Source::pairs, Source::small})
        keys[n++] = {precision, head_dim, kListBlock, Mask::lengths, source};
    keys[n++] = {precision, 256, kHalfBlock, Mask::lengths, Source::halves};
  }
  return keys;
}
}  // namespace detail

inline constexpr auto kInstances = detail::make_instances();

}  // namespace fovea::flash_sm90
