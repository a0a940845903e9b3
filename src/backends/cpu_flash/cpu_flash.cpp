#include "src/backends/cpu_flash/cpu_flash.hpp"

#include <algorithm>

#include "src/backends/cpu_flash/few_scores.hpp"
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
// Tiles of a part of the last work items.
constexpr int64_t kLastTiles = 2;
// Packed bytes of a (batch item, kv head) pair that one worker packs and uses by itself, and how
// many pairs per worker make that worthwhile.
constexpr int64_t kOwnBytes = int64_t{640} << 10;
constexpr int64_t kUnitsPerWorker = 4;
// Few rows against many keys: the keys are divided too, so that there are about this many work
// items of at least so many blocks. Nothing here depends on the workers, so results do not either.
constexpr int64_t kSplitItems = 64;
constexpr int64_t kMinSplitBlocks = 2;

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
  int64_t splits = 1;  // parts of the keys per work item
  // So many of the last work items are cut into parts of so many rows: workers then end together.
  int64_t cut_items = 0;
  int64_t part_rows = 0;
  bool own_units = false;  // a worker packs a unit, uses it and forgets it
  // Workspace: infos, K blocks, V blocks, parts, then one scratch area per worker. With own_units
  // the first three are per worker.
  int64_t info_bytes = 0;
  int64_t k_bytes = 0;
  int64_t v_bytes = 0;
  int64_t part_bytes = 0;
  int64_t worker_bytes = 0;

  int64_t unit_areas(int workers) const { return own_units ? workers : units_in_flight; }
  int64_t packed_bytes() const { return info_bytes + k_bytes + v_bytes; }
};

int64_t block_keys(const Params& params) {
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
  const int64_t k_words = round_up(ceil_div(params.head_dim, group), kernels.depth);
  const int64_t v_columns = round_up(params.dim_v, kernels.tile_rows);
  g.block_keys = block_keys(params);
  g.block_capacity = round_up(g.block_keys, std::max<int64_t>(kernels.tile_rows, 2 * group));
  g.k_block_floats = round_up(g.block_capacity * k_words, 16);
  // One line more than a strip, so that strips do not all start in the same cache set.
  g.v_strip_floats = round_up(g.block_capacity / group * kernels.tile_rows, 16) + 16;
  g.v_block_floats = v_columns / kernels.tile_rows * g.v_strip_floats;
  // Tile products keep the weights of a block and the scores of a few strips.
  g.score_floats = (kernels.depth > 1 ? kMaxBlockKeys : g.block_capacity) * lanes;
  g.tile_floats = round_up(lanes * (k_words + v_columns + 2), 16);
  for (int32_t m = 0; m < params.num_masks; ++m) {
    if (depends_on_key_only(params, params.masks[m])) g.key_masks |= 1u << m;
  }

  const int64_t segments = layout.packed ? params.documents : params.batch;
  layout.kv_slots = Slots(params.cu_seqlens_kv, segments, params.seq_kv, g.block_keys).count();

  const int64_t info = layout.kv_slots * static_cast<int64_t>(sizeof(BlockInfo));
  const int64_t unit_bytes =
      info + layout.kv_slots * (g.k_block_floats + g.v_block_floats) * int64_t{4};
  layout.own_units =
      !layout.packed && layout.units >= kUnitsPerWorker * workers && unit_bytes <= kOwnBytes;

  int64_t tiles = std::clamp<int64_t>(kSuperblockBytes / (g.tile_floats * 4), 2, kMaxTiles);
  const auto items = [&](int64_t rows) {
    return layout.units * layout.heads_per_kv * ceil_div(params.seq_q, rows);
  };
  while (tiles > 1 && !layout.own_units && items(tiles * lanes) < kItemsPerWorker * workers) {
    tiles /= 2;
  }
  if (!layout.packed && params.blocks.counts == nullptr && items(lanes) < kSplitItems) {
    const int64_t wanted = ceil_div(kSplitItems, std::max<int64_t>(items(lanes), 1));
    layout.splits = std::clamp<int64_t>(layout.kv_slots / kMinSplitBlocks, 1, wanted);
    if (layout.splits > 1) tiles = 1, layout.own_units = false;
  }
  layout.item_rows = tiles * lanes;
  if (params.blocks.counts != nullptr) {
    layout.item_rows = params.blocks.block_q;
    tiles = ceil_div(layout.item_rows, lanes);
  }
  g.tiles = static_cast<int32_t>(tiles);
  layout.part_rows = kLastTiles * lanes;
  const bool cut = workers > 1 && params.blocks.counts == nullptr;
  if (cut && layout.item_rows > layout.part_rows) layout.cut_items = workers;
  layout.q_slots = Slots(params.cu_seqlens_q, segments, params.seq_q, layout.item_rows).count();

  layout.units_in_flight = std::clamp<int64_t>(kPackedBytes / std::max<int64_t>(unit_bytes, 1), 1,
                                               std::max<int64_t>(layout.units, 1));
  const int64_t blocks = layout.unit_areas(workers) * layout.kv_slots;
  layout.info_bytes = round_up(blocks * static_cast<int64_t>(sizeof(BlockInfo)), kAlignment);
  layout.k_bytes = round_up(blocks * g.k_block_floats * 4, kAlignment);
  layout.v_bytes = round_up(blocks * g.v_block_floats * 4, kAlignment);
  if (layout.splits > 1) {
    layout.part_bytes = layout.units_in_flight * layout.heads_per_kv * layout.q_slots *
                        layout.splits * g.tile_floats * 4;
  }
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
    case simd::Isa::amx:
      return dtype == FloatType::bf16 ? amx_bf16_kernels() : avx512bf16_f32_kernels();
    case simd::Isa::neon:
      return neon_f32_kernels();
  }
  return nullptr;
}

size_t workspace_bytes(const Params& params, const KernelTable& kernels, int workers) noexcept {
  const Layout layout = make_layout(params, kernels, workers);
  return static_cast<size_t>(layout.packed_bytes() + layout.part_bytes +
                             layout.worker_bytes * workers);
}

namespace {

// One call: where its pieces lie in the workspace, and the work items over them.
class Call {
 public:
  Call(const Params& params, const KernelTable& kernels, void* workspace, int workers)
      : params_(params),
        kernels_(kernels),
        layout_(make_layout(params, kernels, workers)),
        kv_slots_(params.cu_seqlens_kv, segments(), params.seq_kv, layout_.geometry.block_keys),
        q_slots_(params.cu_seqlens_q, segments(), params.seq_q, layout_.item_rows) {
    char* const memory = static_cast<char*>(workspace);
    infos_ = reinterpret_cast<BlockInfo*>(memory);
    k_blocks_ = reinterpret_cast<float*>(memory + layout_.info_bytes);
    v_blocks_ = reinterpret_cast<float*>(memory + layout_.info_bytes + layout_.k_bytes);
    parts_ = reinterpret_cast<float*>(memory + layout_.packed_bytes());
    scratch_ = memory + layout_.packed_bytes() + layout_.part_bytes;
  }

  void run(Executor& executor) const {
    if (layout_.own_units) {
      executor.parallel_for(layout_.units, [&](int64_t unit, int worker) {
        for (int64_t slot = 0; slot < layout_.kv_slots; ++slot) pack(unit, worker, slot);
        for (int64_t item = 0; item < items_per_unit(); ++item) {
          attend(unit, worker, item, {0, layout_.item_rows}, worker);
        }
      });
      return;
    }
    for (int64_t first = 0; first < layout_.units; first += layout_.units_in_flight) {
      const int64_t units = std::min(layout_.units_in_flight, layout_.units - first);
      executor.parallel_for(units * layout_.kv_slots, [&](int64_t index, int) {
        const int64_t area = index / layout_.kv_slots;
        pack(first + area, area, index % layout_.kv_slots);
      });
      const int64_t items = items_per_unit();
      if (layout_.splits == 1) {
        const int64_t whole = std::max<int64_t>(units * items - layout_.cut_items, 0);
        const int64_t parts = ceil_div(layout_.item_rows, layout_.part_rows);
        executor.parallel_for(
            whole + (units * items - whole) * parts, [&](int64_t index, int worker) {
              const int64_t cut = index - whole;
              const int64_t at = cut < 0 ? index : whole + cut / parts;
              const Rows rows = cut < 0 ? Rows{0, layout_.item_rows}
                                        : Rows{cut % parts * layout_.part_rows, layout_.part_rows};
              attend(first + at / items, at / items, at % items, rows, worker);
            });
        continue;
      }
      executor.parallel_for(units * items * layout_.splits, [&](int64_t index, int worker) {
        const int64_t item = index / layout_.splits;
        attend_part(first + item / items, item / items, item % items, index % layout_.splits,
                    worker);
      });
      executor.parallel_for(units * items, [&](int64_t index, int) {
        merge(first + index / items, index / items, index % items);
      });
    }
  }

 private:
  int64_t segments() const { return layout_.packed ? params_.documents : params_.batch; }
  int64_t items_per_unit() const { return layout_.heads_per_kv * layout_.q_slots; }
  float* scratch(int worker) const {
    return reinterpret_cast<float*>(scratch_ + worker * layout_.worker_bytes);
  }

  // Packs one block of a unit into the blocks of `area`.
  void pack(int64_t unit, int64_t area, int64_t slot) const {
    const Geometry& g = layout_.geometry;
    const int64_t document = layout_.packed ? kv_slots_.segment(slot) : 0;
    const Segment segment = layout_.packed ? document_segment(params_, document)
                                           : padded_segment(params_, unit / params_.heads_kv);
    const int64_t block = slot - kv_slots_.first(document);
    if (block * g.block_keys >= segment.kv_length) return;
    const int64_t at = area * layout_.kv_slots + slot;
    kernels_.pack(params_, g, segment, unit % params_.heads_kv, block,
                  k_blocks_ + at * g.k_block_floats, v_blocks_ + at * g.v_block_floats,
                  infos_ + at);
  }

  // What a work item of a unit computes.
  struct Item {
    Segment segment;
    int64_t head_q = 0;
    int64_t row = 0;
    int64_t rows = 0;  // at most 0: nothing
    PackedBlocks packed;
  };
  Item item(int64_t unit, int64_t area, int64_t index) const {
    const Geometry& g = layout_.geometry;
    const int64_t slot = index % layout_.q_slots;
    const int64_t document = layout_.packed ? q_slots_.segment(slot) : 0;
    Item item;
    item.segment = layout_.packed ? document_segment(params_, document)
                                  : padded_segment(params_, unit / params_.heads_kv);
    item.head_q = unit % params_.heads_kv * layout_.heads_per_kv + index / layout_.q_slots;
    item.row = (slot - q_slots_.first(document)) * layout_.item_rows;
    item.rows = std::min(layout_.item_rows, item.segment.q_length - item.row);
    const int64_t block = area * layout_.kv_slots + kv_slots_.first(document);
    item.packed = {k_blocks_ + block * g.k_block_floats, v_blocks_ + block * g.v_block_floats,
                   infos_ + block};
    return item;
  }

  // Rows of a work item, counted from its first.
  struct Rows {
    int64_t first;
    int64_t count;
  };

  void attend(int64_t unit, int64_t area, int64_t index, Rows part, int worker) const {
    Item work = item(unit, area, index);
    work.row += part.first;
    work.rows = std::min(part.count, work.rows - part.first);
    if (work.rows <= 0) return;
    kernels_.attend(params_, layout_.geometry, work.segment, work.head_q, work.row, work.rows,
                    work.packed, scratch(worker));
  }

  float* parts(int64_t area, int64_t index) const {
    return parts_ +
           (area * items_per_unit() + index) * layout_.splits * layout_.geometry.tile_floats;
  }

  void attend_part(int64_t unit, int64_t area, int64_t index, int64_t part, int worker) const {
    const Item work = item(unit, area, index);
    if (work.rows <= 0) return;
    kernels_.attend_part(params_, layout_.geometry, work.segment, work.head_q, work.row, work.rows,
                         work.packed, layout_.kv_slots * part / layout_.splits,
                         layout_.kv_slots * (part + 1) / layout_.splits, scratch(worker),
                         parts(area, index) + part * layout_.geometry.tile_floats);
  }

  void merge(int64_t unit, int64_t area, int64_t index) const {
    const Item work = item(unit, area, index);
    if (work.rows <= 0) return;
    kernels_.merge(params_, layout_.geometry, work.segment, work.head_q, work.row, work.rows,
                   parts(area, index), layout_.splits);
  }

  const Params& params_;
  const KernelTable& kernels_;
  const Layout layout_;
  const Slots kv_slots_;
  const Slots q_slots_;
  BlockInfo* infos_ = nullptr;
  float* k_blocks_ = nullptr;
  float* v_blocks_ = nullptr;
  float* parts_ = nullptr;
  char* scratch_ = nullptr;
};

}  // namespace

void run(const Params& params, const KernelTable& kernels, void* workspace,
         Executor& executor) noexcept {
  if (params.heads_q == 0 || params.seq_q == 0) return;
  if (has_few_scores(params)) return attend_few_scores(params, executor);
  Call(params, kernels, workspace, executor.workers()).run(executor);
}

}  // namespace fovea::cpu_flash
