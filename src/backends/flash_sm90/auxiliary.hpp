// The small kernels around the attention kernel. All enqueue on the caller's stream.
#pragma once

#include <cstdint>

#include "src/backends/flash_sm90/launch.hpp"

namespace fovea::flash_sm90 {

/// Key bits, visiting order and counts of every key row from a bool mask and optional key lengths.
int pack_key_bits(const Problem& problem, const Arguments& arguments, int block_kv,
                  std::uint32_t* bits, int* entries, int* counts, CUstream_st* stream);

/// O = 0 and LSE = -inf everywhere: the result without keys.
int fill_empty(const Problem& problem, const Arguments& arguments, CUstream_st* stream);

}  // namespace fovea::flash_sm90
