// A position in a ring of buffers guarded by full/empty mbarrier pairs.
#pragma once

#include "src/cuda/ptx.cuh"

namespace fovea::cuda {

template <int kBuffers>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  FOVEA_DEVICE void next() {
    if (++stage == kBuffers) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace fovea::cuda
