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

// Memory that is wanted soon, handed out to register tiles little by little: all at once would fill
// the core's list of outstanding lines, and what is computed meanwhile would wait behind it.
class FetchQueue {
 public:
  FOVEA_INLINE void clear() { first_ = end_ = 0; }

  // `runs` runs of `count` lines: lines `step` bytes apart, runs `run_step`.
  FOVEA_INLINE void add(const void* memory, int64_t count, int64_t step, int64_t runs,
                        int64_t run_step) {
    if (end_ == kRegions || count <= 0 || runs <= 0) return;
    regions_[end_++] = {static_cast<const char*>(memory), step, count, runs, run_step, 0};
  }

  // About `lines` of them. A register tile may fetch a few past the end of a run; where nothing is
  // left it fetches `idle`, over and over.
  FOVEA_INLINE Ahead take(int64_t lines, const void* idle) {
    if (first_ == end_) return {idle, 0};
    Region& region = regions_[first_];
    const Ahead ahead{region.run + region.done * region.step, region.step};
    region.done += lines;
    if (region.done >= region.count) {
      region.done = 0;
      region.run += region.run_step;
      if (--region.runs == 0) ++first_;
    }
    return ahead;
  }

 private:
  struct Region {
    const char* run;
    int64_t step, count, runs, run_step, done;
  };
  static constexpr int kRegions = 4;
  Region regions_[kRegions];
  int first_ = 0, end_ = 0;
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
