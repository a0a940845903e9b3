// Random valid problems for property tests.
#pragma once

#include <cmath>
#include <random>

#include "fovea/problem.hpp"

namespace fovea {

class RandomProblems {
 public:
  explicit RandomProblems(uint64_t seed) : random_(seed) {}

  // Sizes stay small enough to run; every field of the grammar is used. Valid by construction.
  Problem next() {
    Problem p;
    constexpr DType kTypes[] = {kF32, kF16, kBF16};
    p.dtype = kTypes[below(3)];
    p.out_dtype = chance(4) ? kF32 : p.dtype;
    p.batch = between(0, 3);
    p.heads_kv = between(1, 4);
    p.heads_q = p.heads_kv * between(1, 4);
    p.seq_q = between(0, 40);
    p.seq_kv = chance(2) ? p.seq_q : between(0, 40);
    p.head_dim = between(1, 80);
    p.dim_v = chance(2) ? p.head_dim : between(1, 80);
    if (chance(4)) p.layout = Layout::bhsd;
    p.out_layout = chance(8) ? Layout::bhsd : p.layout;
    if (chance(4)) make_packed(p);
    p.causal = chance(3);
    if (chance(4)) p.window = {between(-1, 20), p.causal ? between(-1, 0) : between(-1, 20)};
    if (p.layout != Layout::packed) {
      if (chance(2)) make_mask(p.mask);
      if (chance(4)) make_lengths(p);
    }
    p.lse = chance(2);
    if (chance(4)) p.scale = std::exp(std::uniform_real_distribution<double>(-9, 3)(random_));
    make_strides(p);
    p.alignment = int32_t{1} << between(p.dtype == kF32 ? 2 : 1, 6);
    if (chance(6)) make_sparse(p);
    if (chance(6) && p.layout != Layout::packed) make_pieces(p);
    if (chance(4)) p.seed = random_();
    return p;
  }

 private:
  int64_t between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  size_t below(size_t count) {
    return static_cast<size_t>(between(0, static_cast<int64_t>(count) - 1));
  }
  bool chance(int64_t one_in) { return between(1, one_in) == 1; }

  void make_packed(Problem& p) {
    p.layout = p.out_layout = Layout::packed;
    p.batch = 1;
    p.seq_q = p.seq_kv = 0;
    for (int64_t n = between(0, 4); n > 0; --n) {
      const Document document{between(0, 12), between(0, 12)};
      p.document_values.push_back(document);
      p.seq_q += document.seq_q;
      p.seq_kv += document.seq_kv;
      p.max_document_q = std::max(p.max_document_q, document.seq_q);
      p.max_document_kv = std::max(p.max_document_kv, document.seq_kv);
    }
    p.documents = static_cast<int64_t>(p.document_values.size());
    if (chance(4)) p.document_values.clear();
  }

  void make_mask(MaskTensor& mask) {
    constexpr MaskKind kKinds[] = {MaskKind::keys, MaskKind::boolean, MaskKind::bias};
    constexpr DType kDTypes[] = {kBool, kU8, kI32, kI64, kF32, kF16, kBF16};
    mask.kind = kKinds[below(3)];
    mask.dtype = mask.kind == MaskKind::bias      ? kDTypes[4 + below(3)]
                 : mask.kind == MaskKind::boolean ? kDTypes[below(4)]
                                                  : kDTypes[below(7)];
    mask.per_batch = chance(2);
    mask.per_head = mask.kind != MaskKind::keys && chance(2);
    mask.per_query = mask.kind != MaskKind::keys && chance(2);
  }

  void make_lengths(Problem& p) {
    p.has_kv_lengths = true;
    if (chance(4)) return;
    for (int64_t b = 0; b < p.batch; ++b) p.kv_length_values.push_back(between(0, p.seq_kv));
  }

  void make_strides(Problem& p) {
    constexpr StridesKind kKinds[] = {StridesKind::contig,    StridesKind::contig,
                                      StridesKind::bhsd_view, StridesKind::expanded,
                                      StridesKind::fused_qkv, StridesKind::custom};
    p.strides_kind = kKinds[below(6)];
    if (p.strides_kind == StridesKind::fused_qkv && p.seq_q != p.seq_kv)
      p.strides_kind = StridesKind::contig;
    if (p.strides_kind == StridesKind::custom)
      for (Strides* s : {&p.q_strides, &p.k_strides, &p.v_strides})
        *s = {p.layout == Layout::packed ? 0 : between(0, 5000), between(0, 5000),
              between(0, 5000)};
    fill_strides(p);
  }

  void make_pieces(Problem& p) {
    p.causal = p.has_kv_lengths = false;
    p.window = {};
    p.kv_length_values.clear();
    p.sparse.reset();
    for (int64_t row = 0; row < p.seq_q;) {
      const int64_t rows = between(1, p.seq_q - row);
      p.pieces.push_back({rows, between(0, p.seq_kv), chance(2)});
      row += rows;
    }
  }

  void make_sparse(Problem& p) {
    constexpr const char* kNames[] = {"radial", "radial:authors", "local", "block_topk"};
    constexpr const char* kKeys[] = {"decay", "frames", "block", "rule"};
    SparsePattern pattern{kNames[below(4)], {}};
    for (size_t i = 0, n = below(5); i < n; ++i)
      pattern.parameters.emplace_back(kKeys[i], std::to_string(between(-9, 99)));
    p.sparse = std::move(pattern);
  }

  std::mt19937_64 random_;
};

}  // namespace fovea
