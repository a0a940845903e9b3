// The plain kernel. No CUDA headers: the stream is the runtime's opaque handle.
#pragma once

#include <cstdint>

#include "src/cuda/attention_call.hpp"

struct CUstream_st;

namespace fovea::cuda_sdpa {

enum class Type : std::uint8_t { f32, f16, bf16 };

inline constexpr int kBlockQ = 8;
inline constexpr int kMaxDim = 512;

/// Enqueues the call on `stream` of `device` and leaves the current device as it was. Needs no
/// workspace, allocates nothing, waits for nothing; capturable in a CUDA graph. A cudaError_t.
int launch(Type type, const cuda::AttentionCall& call, int device, CUstream_st* stream);

/// What the runtime says of a code from launch; static storage.
const char* describe(int code);

}  // namespace fovea::cuda_sdpa
