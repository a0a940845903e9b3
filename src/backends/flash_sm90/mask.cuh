// Partial tiles: hiding scores, and keeping values behind hidden keys out of P.V. A hidden key has
// probability exactly 0, but 0 * NaN is NaN, so its row of V must not reach the tensor core as it
// is.
#pragma once

#include "src/backends/flash_sm90/work.cuh"

namespace fovea::flash_sm90 {

/// Position of a consumer thread in its query tile.
struct Lane {
  int row;     // of h = 0 within the query tile; h = 1 is 8 below
  int column;  // of register 0: 2 * (lane % 4)
};

/// Visible columns [low, high) of one row in block-relative terms.
struct Visible {
  int low, high;
};
template <Key kKey>
FOVEA_DEVICE Visible visible_range(const Params& p, const Task& t, int first_key, int row) {
  if constexpr (Traits<kKey>::kBand) {
    const int diagonal = t.m * Traits<kKey>::kBlockQ + row + t.kv_length - t.q_length;
    return {diagonal - p.window_left - first_key,
            min(t.kv_length, diagonal + p.window_right + 1) - first_key};
  } else if constexpr (Traits<kKey>::kPairs) {
    return {0, t.low_block};
  } else {
    return {0, t.kv_length - first_key};
  }
}

/// Sets the hidden scores of visited block i to -inf.
template <Key kKey, int kScores>
FOVEA_DEVICE void hide(float (&s)[kScores], const Params& p, const Task& t, int i,
                       const Lane& lane) {
  using T = Traits<kKey>;
  const int block = block_of<kKey>(p, t, i), first_key = block * T::kBlockKv;
  if constexpr (!T::kKeyBits) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const Visible v = visible_range<kKey>(p, t, first_key, lane.row + 8 * h);
      const int low = v.low - lane.column, high = v.high - lane.column;
#pragma unroll
      for (int j = 0; j < kScores / 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int c = 8 * j + e;
          if (c >= high || (T::kBand && c < low)) s[4 * j + 2 * h + e] = -INFINITY;
        }
    }
  }
  if (T::kKeyBits || (T::kBand && p.key_bits)) {
    const uint32_t* words = key_words(p, t, block);
#pragma unroll
    for (int w = 0; w < (T::kBlockKv + 31) / 32; w++) {
      const uint32_t bits = __ldg(words + w) >> lane.column;
#pragma unroll
      for (int j = 4 * w; j < 4 * w + 4 && j < kScores / 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (!(bits & (1u << (8 * (j - 4 * w) + e)))) s[4 * j + e] = s[4 * j + 2 + e] = -INFINITY;
    }
  }
}

/// Keys hidden from every row: the calling warpgroup zeroes their rows of V (every warpgroup writes
/// the same zeros). The caller synchronises the warpgroup before its next product.
template <Key kKey>
FOVEA_DEVICE void clear_hidden_values(uint32_t v, const Params& p, const Task& t, int i) {
  using T = Traits<kKey>;
  constexpr int kChunks = T::kHeadDim / 8;
  const int thread = threadIdx.x % 128, block = block_of<kKey>(p, t, i);
  const int from = T::kKeyBits ? 0
                   : T::kPairs ? t.low_block
                               : max(0, t.kv_length - block * T::kBlockKv);
  for (int n = from * kChunks + thread; n < T::kBlockKv * kChunks; n += 128) {
    const int row = n / kChunks, chunk = n % kChunks;
    if constexpr (T::kKeyBits) {
      const uint32_t* words = key_words(p, t, block);
      if (__ldg(words + row / 32) >> (row % 32) & 1) continue;
    }
    cuda::shared_store_16(v + T::Tile::offset(row, chunk, T::kBlockKv), uint4{});
  }
  cuda::fence_async_shared();
}

/// Whether this thread's share of a V tile holds a NaN or an infinity; `threads` threads share it.
template <Key kKey>
FOVEA_DEVICE bool holds_non_finite(uint32_t v, int thread, int threads) {
  using T = Traits<kKey>;
  uint32_t found = 0;
  for (uint32_t at = thread * 16; at < T::kKvBytes; at += threads * 16) {
    const uint4 x = cuda::shared_load_16(v + at);
    found |= cuda::non_finite_halves<typename T::Type>(x.x) |
             cuda::non_finite_halves<typename T::Type>(x.y) |
             cuda::non_finite_halves<typename T::Type>(x.z) |
             cuda::non_finite_halves<typename T::Type>(x.w);
  }
  return found != 0;
}

/// The select path, first half: adds the non-finite values of a V tile to the rows that see their
/// key. (Any positive probability times such a value is that value, or NaN beside another one.)
template <Key kKey, int kOutputs>
FOVEA_DEVICE void add_non_finite(float (&o)[kOutputs], uint32_t v, const Params& p, const Task& t,
                                 int i, const Lane& lane) {
  using T = Traits<kKey>;
  using Type = typename T::Type;
  const int block = block_of<kKey>(p, t, i), first_key = block * T::kBlockKv;
  const Visible upper = visible_range<kKey>(p, t, first_key, lane.row);
  const Visible lower = visible_range<kKey>(p, t, first_key, lane.row + 8);
#pragma unroll 1
  for (int key = 0; key < T::kBlockKv; key++) {
    if (p.key_bits) {
      const uint32_t* words = key_words(p, t, block);
      if (!(__ldg(words + key / 32) >> (key % 32) & 1)) continue;
    }
    const bool in_upper = key >= upper.low && key < upper.high;
    const bool in_lower = key >= lower.low && key < lower.high;
    if (!in_upper && !in_lower) continue;
#pragma unroll
    for (int j = 0; j < kOutputs / 4; j++) {
      const uint32_t pair =
          cuda::shared_load_4(v + T::Tile::offset(key, j, T::kBlockKv) + 2 * lane.column);
      if (!cuda::non_finite_halves<Type>(pair)) continue;
      const uint32_t bad = pair & ~cuda::finite_halves<Type>(pair);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float x = Type::widen(e ? bad >> 16 : bad & 0xffff);
        if (in_upper) o[4 * j + e] += x;
        if (in_lower) o[4 * j + 2 + e] += x;
      }
    }
  }
}

/// Second half: zeroes them in this thread's share of the tile.
template <Key kKey>
FOVEA_DEVICE void clear_non_finite(uint32_t v, int thread, int threads) {
  using T = Traits<kKey>;
  using Type = typename T::Type;
  for (uint32_t at = thread * 16; at < T::kKvBytes; at += threads * 16) {
    const uint4 x = cuda::shared_load_16(v + at);
    cuda::shared_store_16(v + at, {cuda::finite_halves<Type>(x.x), cuda::finite_halves<Type>(x.y),
                                   cuda::finite_halves<Type>(x.z), cuda::finite_halves<Type>(x.w)});
  }
  cuda::fence_async_shared();
}

}  // namespace fovea::flash_sm90
