#include "src/backends/block_topk_sm90/selection.hpp"

#include <algorithm>
#include <string>

#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/core/checked_math.hpp"

namespace fovea::backends {
namespace {

block_topk_sm90::Heads heads(const Strides& s) { return {nullptr, s.batch, s.seq, s.head}; }

}  // namespace

block_topk_sm90::Call make_selection(const Problem& p, const BlockTopk& options) {
  block_topk_sm90::Call call;
  call.f16 = p.dtype == kF16;
  call.has_lengths = p.has_kv_lengths;
  call.batch = static_cast<int>(p.batch);
  call.heads_q = static_cast<int>(p.heads_q);
  call.heads_kv = static_cast<int>(p.heads_kv);
  call.seq_q = static_cast<int>(p.seq_q);
  call.seq_kv = static_cast<int>(p.seq_kv);
  call.head_dim = static_cast<int>(p.head_dim);
  call.q = heads(p.q_strides);
  call.k = heads(p.k_strides);
  call.scale = static_cast<float>(p.effective_scale());
  call.block = options.block_size;
  call.sparsity = options.sparsity;
  call.protected_prefix = options.protected_prefix;
  call.most = static_cast<int>(topk_count(options, p.seq_kv));
  return call;
}

std::optional<Reason> selection_refusal(const Problem& p) {
  if (p.head_dim > 128)
    return Reason{ReasonCode::head_dim, "head_dim", std::to_string(p.head_dim),
                  "at most 128 with blocks chosen from the data", "give a block mask instead"};
  const auto beyond = [](const char* field, int64_t got, const std::string& accepted) {
    return Reason{ReasonCode::seq_limit, field, std::to_string(got), accepted, {}};
  };
  // What a launch counts in blocks of 128 tokens and in batch items.
  constexpr int64_t kMostBlocks = 65535, kMostTokens = kMostBlocks * 128;
  if (p.batch > kMostBlocks) return beyond("batch", p.batch, std::to_string(kMostBlocks));
  const int64_t longest = std::max(p.seq_q, p.seq_kv);
  if (longest > kMostTokens) return beyond("seq", longest, std::to_string(kMostTokens));
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto cells = [](int64_t tokens) { return tokens / block_topk_sm90::kCellTokens + 1; };
  const int64_t largest = std::max(saturating_product({p.batch, p.heads_q, cells(p.seq_q)}),
                                   saturating_product({p.batch, p.heads_kv, cells(p.seq_kv)}));
  if (largest < kMost) return std::nullopt;
  return Reason{ReasonCode::seq_limit,
                "seq x heads",
                std::to_string(largest) + " cells of 16 tokens",
                "less than 2^30 cells",
                {}};
}

}  // namespace fovea::backends
