// The state of one tile of queries, and what it fetches ahead.
#pragma once

#include <cstdint>

#include "src/simd/quad.hpp"

namespace fovea::cpu_flash {

// Lines of memory for one register tile to fetch while it computes, one with every few steps.
struct Ahead {
  const void* at = nullptr;
  int64_t step = 0;  // bytes
};

// Rows of a tensor that are wanted soon.
struct RowCursor {
  const char* row = nullptr;
  int64_t stride = 0;  // bytes
  int64_t bytes = 0;
  int64_t rows = 0;
  int64_t at = 0;

  FOVEA_INLINE int64_t lines() const { return rows > 0 ? rows * ((bytes + 63) / 64) : 0; }

  // The next `count` lines, row by row.
  FOVEA_INLINE void fetch(int64_t count) {
    while (count > 0 && rows > 0) {
      const int64_t rest = bytes - at;
      const int64_t step = rest < count * 64 ? rest : count * 64;
      for (int64_t i = 0; i < step; i += 64) __builtin_prefetch(row + at + i);
      count -= (step + 63) / 64;
      at += step;
      if (at < bytes) continue;
      at = 0;
      row += stride;
      --rows;
    }
  }
};

// Memory that is wanted soon, fetched little by little while tiles compute: all at once would fill
// the core's list of outstanding lines, and what is computed meanwhile would wait behind it.
struct FetchQueue {
  RowCursor rows[2];

  FOVEA_INLINE void clear() {
    first_ = end_ = 0;
    rows[0].rows = rows[1].rows = 0;
  }

  // `runs` runs of `count` lines: lines `step` bytes apart, runs `run_step`.
  FOVEA_INLINE void add(const void* memory, int64_t count, int64_t step, int64_t runs,
                        int64_t run_step) {
    if (end_ == kRegions || count <= 0 || runs <= 0) return;
    regions_[end_++] = {static_cast<const char*>(memory), step, count, runs, run_step, 0};
  }

  // Rows by columns of lines: for tensors of few rows, whose pages the core keeps at hand.
  FOVEA_INLINE void add_columns(const RowCursor& tensor) {
    add(tensor.row, tensor.rows, tensor.stride, (tensor.bytes + 63) / 64, 64);
  }

  // Spreads what was added over so many register tiles, of so many lines in all.
  FOVEA_INLINE void spread(int64_t register_tiles, int64_t lines) {
    for (int i = 0; i < 2; ++i) {
      per_tile_[i] = (rows[i].lines() + register_tiles - 1) / register_tiles;
    }
    int64_t mine = 0;
    for (int i = 0; i < end_; ++i) mine += regions_[i].count * regions_[i].runs;
    pace_ = mine > 0 && lines > mine ? lines / mine : 1;
    turn_ = 0;
  }

  // What one register tile fetches, about `lines` lines and perhaps a few past the end of a run;
  // where there is nothing it fetches `idle`, over and over.
  FOVEA_INLINE Ahead take(int64_t lines, const void* idle) {
    rows[0].fetch(per_tile_[0]);
    rows[1].fetch(per_tile_[1]);
    if (first_ == end_ || ++turn_ < pace_) return {idle, 0};
    turn_ = 0;
    Region& region = regions_[first_];
    const Ahead taken{region.run + region.done * region.step, region.step};
    region.done += lines;
    if (region.done >= region.count) {
      region.done = 0;
      region.run += region.run_step;
      if (--region.runs == 0) ++first_;
    }
    return taken;
  }

 private:
  struct Region {
    const char* run;
    int64_t step, count, runs, run_step, done;
  };
  static constexpr int kRegions = 2;
  Region regions_[kRegions];
  int first_ = 0, end_ = 0;
  int64_t pace_ = 1;  // one register tile of so many fetches
  int64_t turn_ = 0;
  int64_t per_tile_[2] = {0, 0};  // lines of `rows` that every register tile fetches
};

struct Tile {
  float* q = nullptr;    // [words of head_dim][lanes]
  float* o = nullptr;    // [dim_v, whole register tiles][lanes]
  float* max = nullptr;  // [lanes], log2 units
  float* sum = nullptr;  // [lanes]
  int64_t row = 0;       // first row within the segment
  int64_t rows = 0;
  int vectors = 0;
  bool started = false;  // o holds something
};

// One block of packed keys as a tile reads it: keys begin..end-1.
struct KeyRange {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t begin = 0;  // a multiple of kTileRows
  int64_t end = 0;
};

}  // namespace fovea::cpu_flash
