// What a kernel asks of an AttentionCall: where a batch item lies and which keys a row sees.
#pragma once

#include "src/cuda/attention_call.hpp"
#include "src/cuda/precision.cuh"

namespace fovea::cuda {

/// A batch item or packed document.
struct Item {
  int batch;  // index along the batch axis of the tensors
  int q_start, q_length;
  int kv_start, kv_length;
};

/// Values from memory are clamped: wrong ones never lead outside the tensors.
FOVEA_DEVICE Item find_item(const AttentionCall& call, int index) {
  Item item{index, 0, call.seq_q, 0, call.seq_kv};
  if (call.cu_seqlens_q) {
    const auto clamp = [](int x, int low, int high) { return min(max(x, low), high); };
    item.batch = 0;
    item.q_start = clamp(call.cu_seqlens_q[index], 0, call.seq_q);
    item.q_length = clamp(call.cu_seqlens_q[index + 1], item.q_start, call.seq_q) - item.q_start;
    item.kv_start = clamp(call.cu_seqlens_kv[index], 0, call.seq_kv);
    item.kv_length =
        clamp(call.cu_seqlens_kv[index + 1], item.kv_start, call.seq_kv) - item.kv_start;
  } else if (call.kv_lengths) {
    const long long length = call.kv_lengths_wide
                                 ? static_cast<const long long*>(call.kv_lengths)[index]
                                 : static_cast<const int*>(call.kv_lengths)[index];
    item.kv_length = static_cast<int>(min(max(length, 0ll), static_cast<long long>(call.seq_kv)));
  }
  return item;
}

/// Keys [low, high) that length and window leave to a row of the item; empty when low >= high.
struct KeyRange {
  int low, high;
};
FOVEA_DEVICE KeyRange key_range(const AttentionCall& call, const Item& item, int row) {
  const int diagonal = row + item.kv_length - item.q_length;
  return {max(0, diagonal - call.window_left),
          min(item.kv_length, diagonal + call.window_right + 1)};
}

/// Address of the mask's row, or null without a mask.
FOVEA_DEVICE const char* mask_row(const AttentionCall& call, int batch, int head, int row) {
  const int64_t at = batch * call.mask_batch + head * call.mask_head + row * call.mask_row;
  const int size = call.mask_type == MaskType::byte ? 1 : call.mask_type == MaskType::f32 ? 4 : 2;
  return static_cast<const char*>(call.mask) + at * size;
}

/// What the mask adds to a score: -inf hides.
template <MaskType kType>
FOVEA_DEVICE float mask_bias(const char* row, int key) {
  if constexpr (kType == MaskType::byte) return row[key] ? 0.f : -INFINITY;
  if constexpr (kType == MaskType::f32) return reinterpret_cast<const float*>(row)[key];
  if constexpr (kType == MaskType::f16)
    return F16::widen(reinterpret_cast<const uint16_t*>(row)[key]);
  if constexpr (kType == MaskType::bf16)
    return Bf16::widen(reinterpret_cast<const uint16_t*>(row)[key]);
  return 0.f;
}
FOVEA_DEVICE float mask_bias(const AttentionCall& call, const char* row, int key) {
  switch (call.mask_type) {
    case MaskType::byte:
      return mask_bias<MaskType::byte>(row, key);
    case MaskType::f32:
      return mask_bias<MaskType::f32>(row, key);
    case MaskType::f16:
      return mask_bias<MaskType::f16>(row, key);
    case MaskType::bf16:
      return mask_bias<MaskType::bf16>(row, key);
    case MaskType::none:
      break;
  }
  return 0.f;
}

/// A visible key's score. A finite bias never hides, so that a sum beyond the range of float32 ends
/// at its edge; a key is hidden by -inf alone.
FOVEA_DEVICE float biased(float score, float bias) {
  if (bias == -INFINITY) return -INFINITY;
  const float sum = score + bias;
  return sum == -INFINITY ? -3.402823466e38f : sum;
}

}  // namespace fovea::cuda
