// One attention call as the portable kernels read it. Plain data, no CUDA headers.
#pragma once

#include <cstdint>

namespace fovea::cuda {

/// How a mask tensor is read. byte: bool and uint8, 0 hides.
enum class MaskType : std::uint8_t { none, byte, f32, f16, bf16 };

/// Device pointer and element strides; the last axis is contiguous.
struct StridedTensor {
  void* data = nullptr;
  std::int64_t batch = 0, row = 0, head = 0;
};

/// Keys visible on one side of the diagonal when nothing bounds them; sequences are shorter.
inline constexpr int kUnboundedWindow = (1 << 30) - 1;

struct AttentionCall {
  StridedTensor q, k, v, out;  // [batch, rows, heads, columns] by strides; packed: batch stride 0
  float* lse = nullptr;        // [batch, heads, seq_q], packed [heads, seq_q]; null: not wanted
  int batch = 0;               // batch items, or packed documents
  int heads = 0;
  int group = 1;              // query heads per key head
  int seq_q = 0, seq_kv = 0;  // rows of the axes; packed: of all documents together
  int max_seq_q = 0;          // of the longest document; otherwise seq_q
  int head_dim = 0, dim_v = 0;
  float scale = 0;
  bool out_float = false;  // float32 output from 16-bit inputs

  const void* kv_lengths = nullptr;   // [batch], int32 or int64
  bool kv_lengths_wide = false;       // int64
  const int* cu_seqlens_q = nullptr;  // [batch + 1] when packed
  const int* cu_seqlens_kv = nullptr;
  int window_left = kUnboundedWindow, window_right = kUnboundedWindow;

  const void* mask = nullptr;  // by strides, 0 where broadcast; the key axis is contiguous
  MaskType mask_type = MaskType::none;
  std::int64_t mask_batch = 0, mask_head = 0, mask_row = 0;
};

}  // namespace fovea::cuda
