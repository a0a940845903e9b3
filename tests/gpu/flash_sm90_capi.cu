// A C entry for timing from Python: dense calls on [B, S, H, D] strided tensors, with optional key
// lengths, key mask and band, calls over block lists, and the selection of blocks.
#include <algorithm>

#include "fovea/problem.hpp"
#include "fovea/sparse.hpp"
#include "src/backends/block_topk_sm90/select.hpp"
#include "src/backends/flash_sm90/launch.hpp"
#include "src/sparse/pattern.hpp"

using namespace fovea::flash_sm90;

extern "C" {

struct FlashCall {
  const void *q, *k, *v;
  void *out, *lse, *workspace, *stream;
  const void *kv_lengths, *key_mask;  // int32 [B]; bool [B, Skv]
  // [query blocks]; [query blocks, key blocks]; for all heads
  const void *list_counts, *list_indices;
  int batch, heads, heads_kv, seq_q, seq_kv, head_dim, dim_v, multiprocessors;
  int f16, band, left, right, out_float, block_kv;  // block_kv 0: chosen
  float scale;
  int list_block_q, list_block_kv;  // tokens of a block, 64 or 128
  long long q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head, o_batch, o_row,
      o_head;
};

/// Returns the workspace size (call != 2) or launches (call == 2); negative: refused or failed.
__attribute__((visibility("default"))) long long flash_sm90_call(const FlashCall* c, int call) {
  Problem problem;
  problem.precision = c->f16 ? Precision::f16 : Precision::bf16;
  problem.batch = c->batch;
  problem.heads_q = c->heads;
  problem.heads_kv = c->heads_kv;
  problem.seq_q = c->seq_q;
  problem.seq_kv = c->seq_kv;
  problem.head_dim = c->head_dim;
  problem.dim_v = c->dim_v;
  problem.lengths = c->kv_lengths != nullptr;
  problem.key_bits = c->key_mask != nullptr;
  problem.key_mask_batches = c->batch;
  problem.band = c->band;
  problem.list = c->list_counts != nullptr;
  if (problem.list) {
    problem.list_block_q = c->list_block_q;
    problem.list_block_kv = c->list_block_kv;
  }
  problem.window_left = c->left;
  problem.window_right = c->right;
  problem.out_float = c->out_float;
  problem.multiprocessors = c->multiprocessors;
  Choice choice = choose(problem);
  if (choice.refusal != Refusal::none) return -1000 - static_cast<int>(choice.refusal);
  if (c->block_kv) choice.key.block_kv = c->block_kv;
  if (call != 2) {
    bool exists = false;
    for (const Key& key : kInstances) exists |= key == choice.key;
    return exists ? static_cast<long long>(workspace_layout(problem, choice.key).total) : -1;
  }
  Arguments a;
  a.q = {const_cast<void*>(c->q), c->q_batch, c->q_row, c->q_head};
  a.k = {const_cast<void*>(c->k), c->k_batch, c->k_row, c->k_head};
  a.v = {const_cast<void*>(c->v), c->v_batch, c->v_row, c->v_head};
  a.out = {c->out, c->o_batch, c->o_row, c->o_head};
  a.lse = static_cast<float*>(c->lse);
  a.scale = c->scale;
  a.kv_lengths = c->kv_lengths;
  a.key_mask = static_cast<const std::uint8_t*>(c->key_mask);
  a.key_mask_batch = c->seq_kv;
  a.workspace = c->workspace;
  a.list_counts = static_cast<const int*>(c->list_counts);
  a.list_indices = static_cast<const int*>(c->list_indices);
  a.list_index_tile = (c->seq_kv + problem.list_block_kv - 1) / problem.list_block_kv;
  static DeviceCache caches[kInstances.size()];
  std::size_t index = 0;
  while (!(kInstances[index] == choice.key)) index++;
  const LaunchStatus s =
      launch(problem, choice, a, 0, caches[index], static_cast<CUstream_st*>(c->stream));
  return s.stage ? -s.stage * 10000 - s.code : 0;
}

/// The lists of a sparse problem, for all heads: counts [query blocks] and indices [query blocks,
/// key blocks]. Returns the number of query blocks; with null pointers only that; -1: refused.
__attribute__((visibility("default"))) long long planned_lists_call(const char* text, int* counts,
                                                                    int* indices) {
  const auto problem = fovea::parse_problem(text);
  if (!problem) return -1;
  const auto pattern = fovea::sparse::read_pattern(*problem);
  if (!pattern) return -1;
  const auto mask = fovea::sparse::planned_mask(*pattern);
  if (!mask) return -1;
  const fovea::BlockMask& m = **mask;
  for (long long row = 0; counts != nullptr && row < m.rows(); row++) {
    const auto list = m.row(0, 0, row);
    counts[row] = static_cast<int>(list.size());
    std::copy(list.begin(), list.end(), indices + row * m.columns());
  }
  return m.rows();
}

struct TopkCall {
  const void *q, *k;
  void *workspace, *stream;
  int batch, heads, heads_kv, seq_q, seq_kv, head_dim, f16, block;
  double sparsity;
  float scale;
  int padding;
  long long q_batch, q_row, q_head, k_batch, k_row, k_head;
};

/// As flash_sm90_call, for the selection alone.
__attribute__((visibility("default"))) long long block_topk_call(const TopkCall* c, int call) {
  namespace topk = fovea::block_topk_sm90;
  topk::Call t;
  t.f16 = c->f16 != 0;
  t.batch = c->batch;
  t.heads_q = c->heads;
  t.heads_kv = c->heads_kv;
  t.seq_q = c->seq_q;
  t.seq_kv = c->seq_kv;
  t.head_dim = c->head_dim;
  t.q = {c->q, c->q_batch, c->q_row, c->q_head};
  t.k = {c->k, c->k_batch, c->k_row, c->k_head};
  t.scale = c->scale;
  t.block = c->block;
  t.sparsity = c->sparsity;
  t.most = static_cast<int>(fovea::topk_count({c->sparsity, c->block, 0}, c->seq_kv));
  if (call != 2) {
    const int error = topk::prepare();
    return error != 0 ? -error : static_cast<long long>(topk::workspace_layout(t).total);
  }
  return -topk::select(t, c->workspace, static_cast<CUstream_st*>(c->stream));
}
}
