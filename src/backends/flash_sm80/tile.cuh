// Tiles of Q, K and V from global to shared memory.
#pragma once

#include "src/cuda/attention_call.hpp"
#include "src/cuda/mma.cuh"

namespace fovea::flash_sm80 {

/// Rows [first, first + kRows) of one head into a tile. Rows from `rows` on and columns from
/// `columns` on become zeros and are not read. Asynchronous when `vector`; otherwise element by
/// element through registers.
template <class T, int kRows>
FOVEA_DEVICE void load_tile(uint32_t tile, const cuda::StridedTensor& tensor, int batch, int head,
                            int64_t first, int rows, int columns, bool vector) {
  using Tile = typename T::Tile;
  constexpr int kChunks = Tile::kChunks;
  const uint16_t* from = static_cast<const uint16_t*>(tensor.data) + batch * tensor.batch +
                         head * tensor.head + first * tensor.row;
  const int thread = static_cast<int>(cuda::opaque(threadIdx.x));
  if (!T::kAny || vector) {
    if constexpr (T::kThreads % kChunks == 0) {
      constexpr int kStep = T::kThreads / kChunks;
      static_assert(kRows % kStep == 0);
      const int row = thread / kChunks, chunk = thread % kChunks;
      const bool inside = chunk * 8 < columns;
      from += row * tensor.row + chunk * 8;
      const int64_t stride = kStep * tensor.row;
#pragma unroll
      for (int i = 0; i < kRows / kStep; i++) {
        cuda::copy_async_16(tile + Tile::offset(row + i * kStep, chunk), from,
                            inside && row + i * kStep < rows);
        from += stride;
      }
    } else {
      static_assert(kRows * kChunks % T::kThreads == 0);
#pragma unroll
      for (int i = 0; i < kRows * kChunks / T::kThreads; i++) {
        const int at = thread + i * T::kThreads, row = at / kChunks, chunk = at % kChunks;
        cuda::copy_async_16(tile + Tile::offset(row, chunk), from + row * tensor.row + chunk * 8,
                            row < rows && chunk * 8 < columns);
      }
    }
  } else {
#pragma unroll 1
    for (int at = thread; at < kRows * kChunks; at += T::kThreads) {
      const int row = at / kChunks, chunk = at % kChunks;
      const uint16_t* source = from + row * tensor.row + chunk * 8;
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int column = chunk * 8 + 2 * i;
        const uint32_t low = row < rows && column < columns ? source[2 * i] : 0;
        const uint32_t high = row < rows && column + 1 < columns ? source[2 * i + 1] : 0;
        pairs[i] = low | high << 16;
      }
      cuda::shared_store_16(tile + Tile::offset(row, chunk),
                            {pairs[0], pairs[1], pairs[2], pairs[3]});
    }
  }
}

}  // namespace fovea::flash_sm80
