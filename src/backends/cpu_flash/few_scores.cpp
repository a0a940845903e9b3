#include "src/backends/cpu_flash/few_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fovea::cpu_flash {
namespace {

constexpr int64_t kMaxScores = 16;      // per head
constexpr int64_t kMaxProducts = 2048;  // per head
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const float* a, const float* b, int64_t n) noexcept {
  double sum[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t j = 0; j < 4; ++j)
      sum[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  for (; i < n; ++i) sum[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

const float* at(const Tensor& t, int64_t batch, int64_t head, int64_t row) noexcept {
  return static_cast<const float*>(t.data) + batch * t.batch + head * t.head + row * t.seq;
}

int64_t length_of(const Params& p, int64_t batch) noexcept {
  if (p.kv_lengths == nullptr) return p.seq_kv;
  return p.kv_lengths_64 ? static_cast<const int64_t*>(p.kv_lengths)[batch]
                         : static_cast<const int32_t*>(p.kv_lengths)[batch];
}

bool hides(const Mask& mask, int64_t batch, int64_t head, int64_t row, int64_t key) noexcept {
  return static_cast<const uint8_t*>(
             mask.data)[batch * mask.batch + head * mask.head + row * mask.row + key] == 0;
}

// One row over the first `length` keys; returns its LSE.
double attend_row(const Params& p, int64_t batch, int64_t head, int64_t row, int64_t length,
                  float* out) noexcept {
  const int64_t head_kv = head / (p.heads_q / p.heads_kv);
  const float* const query = at(p.q, batch, head, row);
  double weight[kMaxScores] = {};
  const float* value[kMaxScores] = {};
  int64_t seen = 0;
  double largest = -kInfinity;
  for (int64_t j = 0; j < length; ++j) {
    const auto hidden = [&](const Mask& mask) { return hides(mask, batch, head, row, j); };
    if (std::any_of(p.masks, p.masks + p.num_masks, hidden)) continue;
    const double score =
        static_cast<double>(p.scale) * dot(query, at(p.k, batch, head_kv, j), p.head_dim);
    if (score > largest || std::isnan(score)) largest = score;  // a NaN stays
    weight[seen] = score;
    value[seen++] = at(p.v, batch, head_kv, j);
  }
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    // When every score is -inf the weights are 0, not exp(-inf + inf).
    weight[j] = largest == -kInfinity ? 0 : std::exp(weight[j] - largest);
    sum += weight[j];
  }
  const double inverse = sum == 0 ? 1 : 1 / sum;
  for (int64_t d = 0; d < p.dim_v; ++d) {
    double o = 0;
    for (int64_t j = 0; j < seen; ++j) o += weight[j] * static_cast<double>(value[j][d]);
    out[d] = static_cast<float>(o * inverse);
  }
  return sum == 0 ? -kInfinity : largest + std::log(sum);
}

}  // namespace

bool has_few_scores(const Params& p) noexcept {
  const bool plain = p.dtype == FloatType::f32 && p.out_dtype == FloatType::f32 &&
                     p.cu_seqlens_q == nullptr && p.left < 0 && p.right < 0;
  return plain && p.seq_kv > 0 && p.seq_q <= kMaxScores && p.seq_kv <= kMaxScores / p.seq_q &&
         p.head_dim + p.dim_v <= kMaxProducts / (p.seq_q * p.seq_kv) &&
         std::all_of(p.masks, p.masks + p.num_masks, [](const Mask& mask) {
           return mask.type == MaskType::boolean || mask.type == MaskType::uint8;
         });
}

void attend_few_scores(const Params& p, Executor& executor) noexcept {
  executor.parallel_for(p.batch * p.heads_q, [&](int64_t index, int) {
    const int64_t batch = index / p.heads_q, head = index % p.heads_q;
    // Few queries and few keys are one block each, listed or not.
    const bool listed = p.blocks.counts == nullptr ||
                        p.blocks.counts[batch * p.blocks.batch + head * p.blocks.head] > 0;
    const int64_t length = listed ? length_of(p, batch) : 0;
    for (int64_t row = 0; row < p.seq_q; ++row) {
      float* const out =
          static_cast<float*>(p.out) + batch * p.out_batch + head * p.out_head + row * p.out_seq;
      const double lse = attend_row(p, batch, head, row, length, out);
      if (p.lse != nullptr)
        p.lse[(batch * p.heads_q + head) * p.lse_rows + row] = static_cast<float>(lse);
    }
  });
}

}  // namespace fovea::cpu_flash
