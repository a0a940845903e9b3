#include "src/backends/flash_sm90/config.hpp"

#include <algorithm>

namespace fovea::flash_sm90 {
namespace {

constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int bucket(std::int64_t head_dim) {
  for (int candidate : kHeadDims)
    if (head_dim <= candidate) return candidate;
  return 0;
}

Mask mask_of(const Problem& problem) {
  if (problem.band) return Mask::band;
  if (problem.key_bits) return Mask::key_bits;
  if (problem.lengths || problem.packed || problem.list) return Mask::lengths;
  return Mask::none;
}

Source source_of(const Problem& problem, int head_dim) {
  if (!problem.list) return Source::dense;
  if (problem.list_block_q == 64) return Source::small;
  if (head_dim == 256) return Source::halves;
  return problem.list_block_kv == 64 ? Source::pairs : Source::list;
}

/// The second instance spends fewer instructions per key or keeps the tensor core busier. It pays
/// on long key axes that its blocks divide with little waste.
bool prefers_long(int head_dim, std::int64_t seq_kv) {
  const int block = long_block(head_dim);
  if (block == 0 || seq_kv < 4096) return false;
  const std::int64_t padded = ceil_div(seq_kv, block) * block;
  return (padded - seq_kv) * 50 <= seq_kv;
}

}  // namespace

Choice choose(const Problem& problem) {
  Choice choice;
  const auto refuse = [&](Refusal refusal) {
    choice.refusal = refusal;
    return choice;
  };
  const auto bad_dim = [](std::int64_t dim) { return dim < 8 || dim > 256 || dim % 8 != 0; };
  if (bad_dim(problem.head_dim)) return refuse(Refusal::head_dim);
  if (bad_dim(problem.dim_v)) return refuse(Refusal::dim_v);
  if (problem.heads_kv < 1 || problem.heads_q % problem.heads_kv != 0)
    return refuse(Refusal::heads);
  const std::int64_t q_tiles =
      ceil_div(std::max<std::int64_t>(problem.seq_q, 1), problem.list ? problem.list_block_q : 128);
  if (problem.seq_q > kMaxRows || problem.seq_kv > kMaxRows ||
      problem.batch * problem.heads_q * q_tiles >= kMaxRows ||
      problem.batch * problem.heads_q * q_tiles * q_tiles >= (std::int64_t{1} << 32))
    return refuse(Refusal::size);
  if ((problem.packed && (problem.lengths || problem.key_bits)) ||
      (problem.list && (problem.key_bits || problem.band || problem.packed)))
    return refuse(Refusal::combination);

  const int head_dim = bucket(std::max(problem.head_dim, problem.dim_v));
  const Mask mask = mask_of(problem);
  const Source source = source_of(problem, head_dim);
  const int block =
      source == Source::dense && mask == Mask::none && prefers_long(head_dim, problem.seq_kv)
          ? long_block(head_dim)
          : 0;
  // The first instance of a kind is the one for any length.
  const auto* key = std::find_if(kInstances.begin(), kInstances.end(), [&](const Key& k) {
    return k.precision == problem.precision && k.head_dim == head_dim && k.mask == mask &&
           k.source == source && (block == 0 || k.block_kv == block);
  });
  if (key == kInstances.end()) return refuse(Refusal::combination);
  choice.key = *key;
  choice.workspace_bytes = workspace_layout(problem, choice.key).total;
  return choice;
}

WorkspaceLayout workspace_layout(const Problem& problem, const Key& key) {
  const Schedule s = schedule(key);
  WorkspaceLayout layout;
  std::size_t end = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = end;
    end += (bytes + 255) / 256 * 256;
    return at;
  };
  const std::size_t groups =
      static_cast<std::size_t>(kMaxMultiprocessors) * static_cast<std::size_t>(s.warpgroups);
  layout.ready = take(groups * sizeof(std::uint64_t));
  layout.partial =
      take(groups * static_cast<std::size_t>(key.head_dim / 2 + 4) * 128 * sizeof(float));
  if (problem.list) layout.next_item = take(sizeof(int));
  if (problem.key_bits) {
    const auto rows = static_cast<std::size_t>(problem.key_mask_batches * problem.key_mask_heads);
    const auto blocks = static_cast<std::size_t>(ceil_div(problem.seq_kv, key.block_kv));
    layout.key_counts = take(rows * 2 * sizeof(int));
    layout.key_entries = take(rows * blocks * sizeof(int));
    layout.key_bits = take(rows * blocks * 8 * sizeof(std::uint32_t));
  }
  layout.total = end;
  return layout;
}

}  // namespace fovea::flash_sm90
