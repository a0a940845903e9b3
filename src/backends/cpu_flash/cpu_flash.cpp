#include "src/backends/cpu_flash/cpu_flash.hpp"

#include <algorithm>

#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash {
namespace {

constexpr int64_t kAlignment = 64;
// Packed heads in flight: enough to keep many workers busy, little enough to bound the workspace.
constexpr int64_t kPackedBytes = int64_t{64} << 20;
// Queries and outputs of one superblock, which share L2 with one packed block.
constexpr int64_t kSuperblockBytes = int64_t{208} << 10;
constexpr int64_t kMaxTiles = 8;
// Work items per worker below which superblocks shrink.
constexpr int64_t kItemsPerWorker = 6;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Divides the segments of one axis into pieces of `step`, numbered without gaps between segments
// that depend on more than the segment's own offset. Padded: every batch item alike. Packed:
// document d starts at slot cu[d] / step + d, which leaves room for every partial piece and at most
// one slot unused per document.
class Slots {
 public:
  Slots(const int32_t* cu_seqlens, int64_t segments, int64_t length, int64_t step)
      : cu_seqlens_(cu_seqlens), segments_(segments), length_(length), step_(step) {}

  int64_t count() const {
    if (cu_seqlens_ != nullptr) return segments_ == 0 ? 0 : length_ / step_ + segments_;
    return ceil_div(length_, step_);
  }
  int64_t first(int64_t segment) const {
    return cu_seqlens_ != nullptr ? cu_seqlens_[segment] / step_ + segment : 0;
  }
  // The segment of a slot; padded layouts have one segment per unit, which the caller knows.
  int64_t segment(int64_t slot) const {
    int64_t low = 0, high = segments_;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (first(middle) <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const int32_t* cu_seqlens_;
  int64_t segments_;
  int64_t length_;
  int64_t step_;
};

// Everything derived from sizes.
struct Layout {
  Geometry geometry;
  bool packed = false;
  int64_t units = 0;  // (batch item, kv head), or kv heads of a packed call
  int64_t units_in_flight = 0;
  int64_t kv_slots = 0;   // blocks of keys per unit
  int64_t item_rows = 0;  // query rows per work item
  int64_t q_slots = 0;    // work items per query head of a unit
  int64_t heads_per_kv = 1;
  // Workspace: infos, K blocks, V blocks, then one scratch area per worker.
  int64_t info_bytes = 0;
  int64_t k_bytes = 0;
  int64_t v_bytes = 0;
  int64_t worker_bytes = 0;
};

int64_t block_keys(const Params& params) {
  if (params.blocks.counts != nullptr) return params.blocks.block_kv;
  int64_t keys = params.seq_kv;
  // Short documents get short blocks, so that padding them costs little memory.
  if (params.cu_seqlens_kv != nullptr && params.documents > 0) {
    keys = std::max<int64_t>(32, ceil_div(params.seq_kv, params.documents));
  }
  return std::clamp<int64_t>(keys, 1, kMaxBlockKeys);
}

bool depends_on_key_only(const Params& params, const Mask& mask) {
  return (mask.row == 0 || params.seq_q == 1) &&
         (mask.head == 0 || params.heads_q == params.heads_kv);
}

Layout make_layout(const Params& params, const KernelTable& kernels, int workers) {
  Layout layout;
  Geometry& g = layout.geometry;
  layout.packed = params.cu_seqlens_q != nullptr;
  layout.heads_per_kv = params.heads_q / std::max<int64_t>(params.heads_kv, 1);
  layout.units = (layout.packed ? 1 : params.batch) * params.heads_kv;

  const int64_t group = kernels.group;
  const int64_t lanes = kernels.lanes * kernels.tile_vectors;
  const int64_t k_words = ceil_div(params.head_dim, group);
  const int64_t v_columns = round_up(params.dim_v, kernels.tile_rows);
  g.block_keys = block_keys(params);
  g.block_capacity = round_up(g.block_keys, std::max<int64_t>(kernels.tile_rows, 2 * group));
  g.k_block_floats = round_up(g.block_capacity * k_words, 16);
  // One line more than a strip, so that strips do not all start in the same cache set.
  g.v_strip_floats = round_up(g.block_capacity / group * kernels.tile_rows, 16) + 16;
  g.v_block_floats = v_columns / kernels.tile_rows * g.v_strip_floats;
  g.score_floats = g.block_capacity * lanes;
  g.tile_floats = round_up(lanes * (k_words + v_columns + 2), 16);
  for (int32_t m = 0; m < params.num_masks; ++m) {
    if (depends_on_key_only(params, params.masks[m])) g.key_masks |= 1u << m;
  }

  const int64_t segments = layout.packed ? params.documents : params.batch;
  layout.kv_slots = Slots(params.cu_seqlens_kv, segments, params.seq_kv, g.block_keys).count();

  int64_t tiles = std::clamp<int64_t>(kSuperblockBytes / (g.tile_floats * 4), 2, kMaxTiles);
  const auto items = [&](int64_t rows) {
    return layout.units * layout.heads_per_kv * ceil_div(params.seq_q, rows);
  };
  while (tiles > 1 && items(tiles * lanes) < kItemsPerWorker * workers) tiles /= 2;
  layout.item_rows = tiles * lanes;
  if (params.blocks.counts != nullptr) {
    layout.item_rows = params.blocks.block_q;
    tiles = ceil_div(layout.item_rows, lanes);
  }
  g.tiles = static_cast<int32_t>(tiles);
  layout.q_slots = Slots(params.cu_seqlens_q, segments, params.seq_q, layout.item_rows).count();

  const int64_t info = layout.kv_slots * static_cast<int64_t>(sizeof(BlockInfo));
  const int64_t unit_bytes =
      info + layout.kv_slots * (g.k_block_floats + g.v_block_floats) * int64_t{4};
  layout.units_in_flight = std::clamp<int64_t>(kPackedBytes / std::max<int64_t>(unit_bytes, 1), 1,
                                               std::max<int64_t>(layout.units, 1));
  layout.info_bytes = round_up(info * layout.units_in_flight, kAlignment);
  layout.k_bytes =
      round_up(layout.units_in_flight * layout.kv_slots * g.k_block_floats * 4, kAlignment);
  layout.v_bytes =
      round_up(layout.units_in_flight * layout.kv_slots * g.v_block_floats * 4, kAlignment);
  layout.worker_bytes = round_up((2 * g.score_floats + tiles * g.tile_floats) * 4, kAlignment);
  return layout;
}

int64_t kv_length(const Params& params, int64_t batch) {
  if (params.kv_lengths == nullptr) return params.seq_kv;
  const int64_t length = params.kv_lengths_64
                             ? static_cast<const int64_t*>(params.kv_lengths)[batch]
                             : static_cast<const int32_t*>(params.kv_lengths)[batch];
  return std::clamp<int64_t>(length, 0, params.seq_kv);
}

Segment padded_segment(const Params& params, int64_t batch) {
  return {batch, 0, params.seq_q, 0, kv_length(params, batch)};
}

Segment document_segment(const Params& params, int64_t document) {
  const int64_t q = params.cu_seqlens_q[document];
  const int64_t kv = params.cu_seqlens_kv[document];
  return {0, q, params.cu_seqlens_q[document + 1] - q, kv, params.cu_seqlens_kv[document + 1] - kv};
}

}  // namespace

const KernelTable* find_kernels(simd::Isa isa, FloatType dtype) noexcept {
  switch (isa) {
    case simd::Isa::generic:
      return generic_f32_kernels();
    case simd::Isa::avx2:
      return avx2_f32_kernels();
    case simd::Isa::avx512:
      return avx512_f32_kernels();
    case simd::Isa::avx512bf16:
      return dtype == FloatType::bf16 ? avx512bf16_bf16_kernels() : avx512bf16_f32_kernels();
    case simd::Isa::neon:
      return neon_f32_kernels();
  }
  return nullptr;
}

size_t workspace_bytes(const Params& params, const KernelTable& kernels, int workers) noexcept {
  const Layout layout = make_layout(params, kernels, workers);
  return static_cast<size_t>(layout.info_bytes + layout.k_bytes + layout.v_bytes +
                             layout.worker_bytes * workers);
}

void run(const Params& params, const KernelTable& kernels, void* workspace,
         Executor& executor) noexcept {
  if (params.heads_q == 0 || params.seq_q == 0) return;
  const Layout layout = make_layout(params, kernels, executor.workers());
  const Geometry& g = layout.geometry;
  const int64_t segments = layout.packed ? params.documents : params.batch;
  const Slots kv_slots(params.cu_seqlens_kv, segments, params.seq_kv, g.block_keys);
  const Slots q_slots(params.cu_seqlens_q, segments, params.seq_q, layout.item_rows);

  char* memory = static_cast<char*>(workspace);
  BlockInfo* const infos = reinterpret_cast<BlockInfo*>(memory);
  float* const k_blocks = reinterpret_cast<float*>(memory + layout.info_bytes);
  float* const v_blocks = reinterpret_cast<float*>(memory + layout.info_bytes + layout.k_bytes);
  char* const scratch = memory + layout.info_bytes + layout.k_bytes + layout.v_bytes;

  for (int64_t first = 0; first < layout.units; first += layout.units_in_flight) {
    const int64_t units = std::min(layout.units_in_flight, layout.units - first);

    executor.parallel_for(units * layout.kv_slots, [&](int64_t index, int) {
      const int64_t unit = first + index / layout.kv_slots;
      const int64_t slot = index % layout.kv_slots;
      const int64_t document = layout.packed ? kv_slots.segment(slot) : 0;
      const Segment segment = layout.packed ? document_segment(params, document)
                                            : padded_segment(params, unit / params.heads_kv);
      const int64_t block = slot - kv_slots.first(document);
      if (block * g.block_keys >= segment.kv_length) return;
      kernels.pack(params, g, segment, unit % params.heads_kv, block,
                   k_blocks + index * g.k_block_floats, v_blocks + index * g.v_block_floats,
                   infos + index);
    });

    const int64_t items_per_unit = layout.heads_per_kv * layout.q_slots;
    executor.parallel_for(units * items_per_unit, [&](int64_t index, int worker) {
      const int64_t local = index / items_per_unit;
      const int64_t unit = first + local;
      const int64_t head_kv = unit % params.heads_kv;
      const int64_t head_q =
          head_kv * layout.heads_per_kv + index % items_per_unit / layout.q_slots;
      const int64_t slot = index % layout.q_slots;
      const int64_t document = layout.packed ? q_slots.segment(slot) : 0;
      const Segment segment = layout.packed ? document_segment(params, document)
                                            : padded_segment(params, unit / params.heads_kv);
      const int64_t row = (slot - q_slots.first(document)) * layout.item_rows;
      if (row >= segment.q_length) return;
      const int64_t block = local * layout.kv_slots + kv_slots.first(document);
      const PackedBlocks packed{k_blocks + block * g.k_block_floats,
                                v_blocks + block * g.v_block_floats, infos + block};
      kernels.attend(params, g, segment, head_q, row,
                     std::min(layout.item_rows, segment.q_length - row), packed,
                     reinterpret_cast<float*>(scratch + worker * layout.worker_bytes));
    });
  }
}

}  // namespace fovea::cpu_flash
