// What cuDNN needs for key lengths: its padding multiplies hidden values by 0, so k and v are
// copied with the hidden rows cleared. No CUDA headers; launches return a cudaError_t.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/problem.hpp"

struct CUstream_st;

namespace fovea::cudnn {

// What one call adds to the workspace, in this order, each at a multiple of 256 bytes.
struct PaddingLayout {
  size_t q_lengths = 0;   // int32 [B], all seq_q
  size_t kv_lengths = 0;  // int32 [B]; 1, a cleared row, where the item has no key
  size_t k = 0;           // [B,Skv,Hkv,D]
  size_t v = 0;           // [B,Skv,Hkv,Dv]
  size_t bytes = 0;
};
PaddingLayout padding_layout(const Problem& problem) noexcept;

// The problem as cuDNN sees it: k and v are the copies.
Problem padded_problem(Problem problem);

struct PaddingCall {
  const void* k = nullptr;  // 16-bit elements, 16-byte aligned, with the problem's strides
  const void* v = nullptr;
  const void* lengths = nullptr;  // int32 or int64 [B]
  bool int64_lengths = false;
  void* memory = nullptr;  // padding_layout(problem).bytes
  void* out = nullptr;     // [B,Sq,Hq,Dv] in either order of axes, contiguous
  float* lse = nullptr;    // [B,Hq,Sq] or null
};
// Before the graph: lengths and copies. Hidden rows are written as zeros and never read.
int launch_padding(const Problem& problem, const PaddingCall& call, CUstream_st* stream);
// After the graph: the output of items without keys is 0 and their LSE -inf.
int launch_empty_items(const Problem& problem, const PaddingCall& call, CUstream_st* stream);

}  // namespace fovea::cudnn
