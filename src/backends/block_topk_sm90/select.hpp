// Choosing the blocks of keys of a call on Hopper, by the rule of src/sparse/topk.cpp. No CUDA
// headers: the stream is the runtime's opaque handle.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace fovea::block_topk_sm90 {

/// Query or key heads by element strides; the last axis is contiguous. 16-byte aligned, strides
/// multiples of 8 elements.
struct Heads {
  const void* data = nullptr;
  std::int64_t batch = 0, row = 0, head = 0;
};

struct Call {
  bool f16 = false;  // else bf16
  int batch = 1, heads_q = 1, heads_kv = 1;
  int seq_q = 0, seq_kv = 0;
  int head_dim = 128;  // multiple of 8, at most 128
  Heads q, k;
  float scale = 0;
  bool has_lengths = false;          // known before kv_lengths is
  const void* kv_lengths = nullptr;  // [batch] int32, or int64 (wide)
  bool kv_lengths_wide = false;
  int block = 128;  // 64 or 128
  double sparsity = 0;
  std::int64_t protected_prefix = 0;
  int most = 0;  // indices of a row: blocks kept where all keys exist
};

/// Whether some row may leave blocks out, so that there is something to score.
bool selects(const Call& call) noexcept;

/// Sections of the workspace, in bytes from its start; what the attention kernel reads comes first.
struct WorkspaceLayout {
  std::size_t counts = 0;   // int32 [batch, heads_q, rows]
  std::size_t indices = 0;  // int32 [batch, heads_q, rows, most], ascending
  std::size_t q_cells = 0, k_cells = 0, q_factors = 0, k_factors = 0, scores = 0;
  std::size_t total = 0;
};
WorkspaceLayout workspace_layout(const Call& call) noexcept;

/// Enqueues the selection on `stream` of the current device. `workspace` is 256-byte aligned, any
/// contents. Allocates nothing, waits for nothing; capturable. Returns a cudaError_t. `most_blocks`
/// limits the thread blocks that score, so that small tests give each of them much to do; 0: one
/// for each multiprocessor.
int select(const Call& call, void* workspace, CUstream_st* stream, int most_blocks = 0);
/// Its three steps: averages of Q and K into the workspace; scores of those; the lists.
int pool(const Call& call, void* workspace, CUstream_st* stream);
int score(const Call& call, void* workspace, CUstream_st* stream, int most_blocks = 0);
int choose(const Call& call, void* workspace, CUstream_st* stream);

/// Raises the kernels' shared-memory limits on the current device. Returns a cudaError_t.
int prepare();

}  // namespace fovea::block_topk_sm90
