#include "src/core/strides.hpp"

namespace fovea {
namespace {

// One of q, k and v.
struct Operand {
  int64_t batch, seq, heads, dim;
  const Strides& strides;

  bool empty() const noexcept { return batch == 0 || seq == 0 || heads == 0 || dim == 0; }
  // Equal wherever a stride is ever used.
  bool reads_like(const Strides& other) const noexcept {
    return empty() ||
           ((batch <= 1 || strides.batch == other.batch) &&
            (seq <= 1 || strides.seq == other.seq) && (heads <= 1 || strides.head == other.head));
  }
  void copy_used(Strides& to) const noexcept {
    if (empty()) return;
    if (batch > 1) to.batch = strides.batch;
    if (seq > 1) to.seq = strides.seq;
    if (heads > 1) to.head = strides.head;
  }
};

}  // namespace

void name_strides(Problem& p, const Strides& q, const Strides& k, const Strides& v) noexcept {
  const Operand operands[] = {{p.batch, p.seq_q, p.heads_q, p.head_dim, q},
                              {p.batch, p.seq_kv, p.heads_kv, p.head_dim, k},
                              {p.batch, p.seq_kv, p.heads_kv, p.dim_v, v}};
  for (StridesKind kind : {StridesKind::contig, StridesKind::fused_qkv, StridesKind::bhsd_view,
                           StridesKind::expanded}) {
    if (kind == StridesKind::fused_qkv && p.seq_q != p.seq_kv) continue;
    p.strides_kind = kind;
    fill_strides(p);
    if (operands[0].reads_like(p.q_strides) && operands[1].reads_like(p.k_strides) &&
        operands[2].reads_like(p.v_strides))
      return;
  }
  p.strides_kind = StridesKind::contig;
  fill_strides(p);
  p.strides_kind = StridesKind::custom;
  operands[0].copy_used(p.q_strides);
  operands[1].copy_used(p.k_strides);
  operands[2].copy_used(p.v_strides);
}

}  // namespace fovea
