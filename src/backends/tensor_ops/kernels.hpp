// Launching the kernels of the tensor operations. No CUDA headers; launches return a cudaError_t.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace fovea::tensor_ops {

enum class Element : std::uint8_t { f32, f16, bf16 };

/// Element strides.
struct HeadsData {
  void* data = nullptr;
  std::int64_t batch = 0, seq = 0, head = 0;
};

struct MergeJob {
  static constexpr int kMaxParts = 16;
  HeadsData out[kMaxParts], lse[kMaxParts];
  HeadsData merged, merged_lse;
  int parts = 0, batch = 0, seq = 0, heads = 0, dim = 0;
  bool seq_inner = false;  // tokens, not heads, are neighbours in the merged tensor
};
int launch_merge(const MergeJob& job, Element in, Element out, int device, CUstream_st* stream);

struct NormRopeJob {
  static constexpr int kMaxToken = 10240;  // elements of a token that shared memory holds
  HeadsData x, out;
  const void* weight = nullptr;  // [dim] or [heads * dim]
  bool whole_token = false;      // the mean is over all heads
  float epsilon = 0;
  const float *cos = nullptr, *sin = nullptr;
  std::int64_t cos_batch = 0, cos_seq = 0, sin_batch = 0, sin_seq = 0;
  int rotary = 0;  // R
  bool half = false;
  int batch = 0, seq = 0, heads = 0, dim = 0;
};
int launch_norm_rope(const NormRopeJob& job, Element x, Element weight, int device,
                     CUstream_st* stream);

struct RepackJob {
  enum class Kind : std::uint8_t { copy, pack, unpack };
  HeadsData from, to;
  Kind kind = Kind::copy;
  const int* cu_seqlens = nullptr;
  int packed_rows = 0;
  int batch = 0, seq = 0, heads = 0, dim = 0;  // of the padded tensor
  int element_bytes = 0;
  bool seq_inner = false;
};
int launch_repack(const RepackJob& job, int device, CUstream_st* stream);

/// What the runtime says of a code; static storage.
const char* describe(int code);

}  // namespace fovea::tensor_ops
