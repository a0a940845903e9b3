#include "examples/demo/attention_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fovea::demo {

namespace {

const float* row_of(const TensorView& view, int64_t batch, int64_t position, int64_t head) {
  return static_cast<const float*>(view.data) + batch * view.stride[0] + position * view.stride[1] +
         head * view.stride[2];
}

std::vector<bool> hidden_keys(const AttentionTensors& tensors, int64_t batch) {
  std::vector<bool> hidden(static_cast<size_t>(tensors.k.shape[1]));
  if (!tensors.mask.present()) return hidden;
  const int64_t item = tensors.mask.shape[0] == 1 ? 0 : batch;
  const auto* attend =
      static_cast<const unsigned char*>(tensors.mask.data) + item * tensors.mask.stride[0];
  for (size_t j = 0; j < hidden.size(); ++j) hidden[j] = attend[j] == 0;
  return hidden;
}

// Softmax of one head, row by row.
std::vector<double> weights_of(const AttentionTensors& tensors, int64_t batch, int64_t head,
                               const std::vector<bool>& hidden) {
  const int64_t rows = tensors.q.shape[1];
  const auto columns = static_cast<int64_t>(hidden.size());
  const int64_t head_dim = tensors.q.shape[3];
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> weights;
  for (int64_t i = 0; i < rows; ++i) {
    const float* q = row_of(tensors.q, batch, i, head);
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) {
      double score = 0;
      const float* k = row_of(tensors.k, batch, j, head);
      for (int64_t d = 0; d < head_dim; ++d) score += double{q[d]} * double{k[d]};
      weights.push_back(hidden[static_cast<size_t>(j)] ? 0 : std::exp(scale * score));
      sum += weights.back();
    }
    for (auto weight = weights.end() - columns; weight != weights.end(); ++weight) *weight /= sum;
  }
  return weights;
}

double entropy(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum -= weight > 0 ? weight * std::log(weight) : 0;
  return sum;
}

}  // namespace

AttentionMap attention_map(const AttentionTensors& tensors, int64_t batch) {
  AttentionMap map;
  map.rows = tensors.q.shape[1];
  map.columns = tensors.k.shape[1];
  map.hidden = hidden_keys(tensors, batch);
  double least = std::numeric_limits<double>::infinity();
  for (int64_t head = 0; head < tensors.q.shape[2]; ++head) {
    std::vector<double> weights = weights_of(tensors, batch, head, map.hidden);
    if (const double found = entropy(weights); found < least) {
      least = found;
      map.weights = std::move(weights);
    }
  }
  return map;
}

}  // namespace fovea::demo
