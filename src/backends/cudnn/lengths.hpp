// The small kernels around a cuDNN graph with key lengths. They enqueue on the caller's stream and
// return a cudaError_t.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace fovea::cudnn {

// q_lengths[b] = seq_q and kv_lengths[b] = the given length, at least 0 and at most seq_kv, both
// int32 [batch]. `given` is int32 or int64 (wide).
int prepare_lengths(const void* given, bool wide, int64_t batch, int64_t seq_q, int64_t seq_kv,
                    int32_t* q_lengths, int32_t* kv_lengths, CUstream_st* stream);

// Writes the result of items without a key: out = 0 and lse = -inf. `out` is a contiguous 16-bit
// tensor of `row_elements` per item; lse (or null) has `lse_elements` per item.
int clear_items_without_keys(const int32_t* kv_lengths, int64_t batch, uint16_t* out,
                             int64_t row_elements, float* lse, int64_t lse_elements,
                             CUstream_st* stream);

}  // namespace fovea::cudnn
