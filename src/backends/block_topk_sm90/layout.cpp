#include "src/backends/block_topk_sm90/cells.hpp"
#include "src/backends/block_topk_sm90/select.hpp"

namespace fovea::block_topk_sm90 {

bool selects(const Call& call) noexcept {
  // A shorter item may keep a smaller share of its blocks.
  return call.has_lengths || call.most < ceil_div(call.seq_kv, call.block);
}

WorkspaceLayout workspace_layout(const Call& call) noexcept {
  WorkspaceLayout layout;
  const auto take = [&](std::int64_t bytes) {
    const std::size_t at = layout.total;
    layout.total += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return at;
  };
  const std::int64_t rows = ceil_div(call.seq_q, call.block);
  const std::int64_t columns = ceil_div(call.seq_kv, call.block);
  const std::int64_t heads_q = std::int64_t{call.batch} * call.heads_q;
  const std::int64_t heads_kv = std::int64_t{call.batch} * call.heads_kv;
  layout.counts = take(heads_q * rows * 4);
  layout.indices = take(heads_q * rows * call.most * 4);
  if (!selects(call)) return layout;
  const std::int64_t q_groups = heads_q * ceil_div(call.seq_q, kQueryCells * kCellTokens);
  const std::int64_t k_groups = heads_kv * ceil_div(call.seq_kv, kKeyCells * kCellTokens);
  const std::int64_t cell_bytes = padded_dim(call.head_dim) * 2;
  layout.q_cells = take(q_groups * kQueryCells * cell_bytes);
  layout.k_cells = take(k_groups * kKeyCells * cell_bytes);
  layout.q_factors = take(q_groups * kQueryFactors * 4);
  layout.k_factors = take(k_groups * kKeyFactors * 4);
  layout.scores = take(heads_q * rows * columns * 4);
  return layout;
}

}  // namespace fovea::block_topk_sm90
