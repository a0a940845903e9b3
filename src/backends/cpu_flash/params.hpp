// What one cpu_flash call computes, as plain data. Nothing here owns memory.
#pragma once

#include <cstdint>

namespace fovea::cpu_flash {

enum class FloatType : int32_t { f32, f16, bf16 };

enum class MaskType : int32_t { boolean, uint8, int32, int64, f32, f16, bf16 };

// A tensor [batch, seq, head, dim] with strides in elements; the last axis is contiguous and any
// other stride may be 0. Packed tensors have no batch axis.
struct Tensor {
  const void* data = nullptr;
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t head = 0;
};

// A mask over [batch, head, row, key] with strides in elements, 0 where an axis is broadcast.
// Boolean and integer types: nonzero attends. Floating types are added to the scaled score.
struct Mask {
  const void* data = nullptr;
  MaskType type = MaskType::boolean;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

// For every (batch, head, block of queries) the blocks of keys it reads, ascending.
// counts[batch * b + head * h + block]; the indices of that row start at `max_count` times the same
// offset. Keys outside the listed blocks are hidden.
struct BlockList {
  const int32_t* counts = nullptr;
  const int32_t* indices = nullptr;
  const uint8_t* partial = nullptr;  // beside indices: 0 where no mask hides anything; may be null
  int64_t batch = 0;                 // stride in query blocks, 0 where broadcast
  int64_t head = 0;
  int64_t max_count = 0;
  int32_t block_q = 0;   // 64 or 128
  int32_t block_kv = 0;  // 64 or 128
};

inline constexpr int kMaxMasks = 4;

struct Params {
  FloatType dtype = FloatType::f32;
  FloatType out_dtype = FloatType::f32;
  int64_t batch = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t seq_q = 0;   // packed: all tokens
  int64_t seq_kv = 0;  // packed: all tokens
  int64_t head_dim = 0;
  int64_t dim_v = 0;
  float scale = 0.f;
  // Row i of n keys and m queries sees keys i + (n - m) - left .. i + (n - m) + right; -1 is
  // unbounded.
  int64_t left = -1;
  int64_t right = -1;

  Tensor q, k, v;
  void* out = nullptr;  // strides below, in elements
  int64_t out_batch = 0;
  int64_t out_seq = 0;
  int64_t out_head = 0;
  float* lse = nullptr;  // [batch, heads_q, lse_rows], packed [heads_q, lse_rows]; may be null
  int64_t lse_rows = 0;  // seq_q, or that of the whole call when this is a part of it

  // Packed documents; both null for padded tensors.
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* cu_seqlens_kv = nullptr;
  int64_t documents = 0;

  const void* kv_lengths = nullptr;  // [batch]
  bool kv_lengths_64 = false;

  Mask masks[kMaxMasks];
  int32_t num_masks = 0;

  BlockList blocks;  // unused while counts is null
};

}  // namespace fovea::cpu_flash
