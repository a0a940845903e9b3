// The state of one tile of queries, and what it fetches ahead.
#pragma once

#include <cstdint>

#include "src/simd/quad.hpp"

namespace fovea::cpu_flash {

// Memory that a tile wants soon, fetched little by little while it computes: all at once would fill
// the core's list of outstanding lines.
struct RowCursor {
  const char* row = nullptr;
  int64_t stride = 0;
  int64_t bytes = 0;
  int64_t rows = 0;
  int64_t at = 0;

  FOVEA_INLINE int64_t lines() const { return rows * ((bytes + 63) / 64); }

  template <int kWrite>
  FOVEA_INLINE void fetch(int64_t count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(row + at, kWrite);
      at += 64;
      if (at < bytes) continue;
      at = 0;
      row += stride;
      --rows;
    }
  }
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
  // Queries of the tile that follows and outputs of this one, so many lines with every strip.
  RowCursor next_q, out;
  int64_t fetch_q = 0;
  int64_t fetch_out = 0;

  FOVEA_INLINE void fetch_ahead() {
    if (fetch_q > 0) next_q.fetch<0>(fetch_q);
    if (fetch_out > 0) out.fetch<1>(fetch_out);
  }
};

// One block of packed keys as a tile reads it: keys begin..end-1.
struct KeyRange {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t begin = 0;  // a multiple of kTileRows
  int64_t end = 0;
};

}  // namespace fovea::cpu_flash
