#include "tools/fovea/baseline.hpp"

#include <algorithm>
#include <cmath>

#include "src/core/element.hpp"

namespace fovea::cli {

namespace {

constexpr int64_t kMaxScores = int64_t{1} << 26;  // over all workers: 256 MiB

// Axes of batch, position and head in q, k and v.
struct Axes {
  size_t seq;
  size_t head;
};
Axes axes_of(Layout layout) { return layout == Layout::bhsd ? Axes{2, 1} : Axes{1, 2}; }

float load(const TensorView& view, Axes axes, int64_t batch, int64_t position, int64_t head,
           int64_t d) {
  const int64_t offset = batch * view.stride[0] + position * view.stride[axes.seq] +
                         head * view.stride[axes.head] + d * view.stride[3];
  if (view.dtype == kF32) return static_cast<const float*>(view.data)[offset];
  return static_cast<float>(load_element(view.data, view.dtype, offset));
}

size_t size_of(int64_t count) { return static_cast<size_t>(count); }

}  // namespace

bool MaterialisedSoftmax::covers(const Problem& p, int workers) noexcept {
  if (!p.dense() || p.causal || p.lse || p.layout == Layout::packed || p.sparse) return false;
  if (p.seq_kv < 1 || p.seq_q < 1 || p.batch < 1) return false;
  return p.seq_q <= kMaxScores / p.seq_kv / std::max(workers, 1);
}

MaterialisedSoftmax::MaterialisedSoftmax(const Problem& problem, const AttentionTensors& tensors,
                                         Executor& executor)
    : problem_(problem), tensors_(tensors), executor_(executor) {
  const Problem& p = problem_;
  output_.resize(size_of(p.batch * p.seq_q * p.heads_q * p.dim_v));
  scratch_.resize(size_of(executor_.workers()));
  for (Scratch& scratch : scratch_) {
    scratch.keys.resize(size_of(p.head_dim * p.seq_kv));
    scratch.values.resize(size_of(p.seq_kv * p.dim_v));
    scratch.scores.resize(size_of(p.seq_q * p.seq_kv));
  }
}

void MaterialisedSoftmax::run() noexcept {
  executor_.parallel_for(problem_.batch * problem_.heads_q, [&](int64_t index, int worker) {
    run_head(index / problem_.heads_q, index % problem_.heads_q, scratch_[size_of(worker)]);
  });
}

void MaterialisedSoftmax::run_head(int64_t batch, int64_t head, Scratch& scratch) noexcept {
  const Problem& p = problem_;
  const Axes axes = axes_of(p.layout);
  const int64_t kv_head = head / (p.heads_q / p.heads_kv);
  const auto scale = static_cast<float>(p.effective_scale());
  for (int64_t j = 0; j < p.seq_kv; ++j) {
    for (int64_t d = 0; d < p.head_dim; ++d) {
      scratch.keys[size_of(d * p.seq_kv + j)] = load(tensors_.k, axes, batch, j, kv_head, d);
    }
    for (int64_t d = 0; d < p.dim_v; ++d) {
      scratch.values[size_of(j * p.dim_v + d)] = load(tensors_.v, axes, batch, j, kv_head, d);
    }
  }
  for (int64_t i = 0; i < p.seq_q; ++i) {
    float* scores = scratch.scores.data() + i * p.seq_kv;
    std::fill_n(scores, p.seq_kv, 0.0f);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const float q = scale * load(tensors_.q, axes, batch, i, head, d);
      const float* keys = scratch.keys.data() + d * p.seq_kv;
      for (int64_t j = 0; j < p.seq_kv; ++j) scores[j] += q * keys[j];
    }
  }
  for (int64_t i = 0; i < p.seq_q; ++i) {
    float* scores = scratch.scores.data() + i * p.seq_kv;
    const float largest = *std::max_element(scores, scores + p.seq_kv);
    float sum = 0;
    for (int64_t j = 0; j < p.seq_kv; ++j) sum += scores[j] = std::exp(scores[j] - largest);
    for (int64_t j = 0; j < p.seq_kv; ++j) scores[j] /= sum;
  }
  for (int64_t i = 0; i < p.seq_q; ++i) {
    const float* weights = scratch.scores.data() + i * p.seq_kv;
    float* out = output_.data() + ((batch * p.seq_q + i) * p.heads_q + head) * p.dim_v;
    std::fill_n(out, p.dim_v, 0.0f);
    for (int64_t j = 0; j < p.seq_kv; ++j) {
      const float* values = scratch.values.data() + j * p.dim_v;
      for (int64_t d = 0; d < p.dim_v; ++d) out[d] += weights[j] * values[d];
    }
  }
}

}  // namespace fovea::cli
