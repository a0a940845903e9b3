#include "src/backends/cudnn/padding.hpp"

namespace fovea::cudnn {

PaddingLayout padding_layout(const Problem& p) noexcept {
  constexpr size_t kAlign = 256;
  PaddingLayout layout;
  const auto place = [&](int64_t bytes) {
    const size_t at = layout.bytes;
    layout.bytes += (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
    return at;
  };
  layout.q_lengths = place(p.batch * 4);
  layout.kv_lengths = place(p.batch * 4);
  layout.k = place(p.batch * p.seq_kv * p.heads_kv * p.head_dim * 2);
  layout.v = place(p.batch * p.seq_kv * p.heads_kv * p.dim_v * 2);
  return layout;
}

Problem padded_problem(Problem p) {
  const auto contiguous = [&](int64_t dim) {
    return Strides{p.seq_kv * p.heads_kv * dim, p.heads_kv * dim, dim};
  };
  p.k_strides = contiguous(p.head_dim);
  p.v_strides = contiguous(p.dim_v);
  p.kv_length_values.clear();
  return p;
}

}  // namespace fovea::cudnn
