// Every block of queries and of keys is averaged over cells of 16 tokens; a pair of blocks scores
// the log-sum-exp over its pairs of cells. Keys are pooled once, [block][dim][cell], so that the
// cells of a block are one vector of every dimension.
#include "src/sparse/topk.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "fovea/attention.hpp"
#include "src/core/text.hpp"
#include "src/sparse/block_mask.hpp"

namespace fovea {
namespace sparse {
namespace {

constexpr size_t kLine = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t round_up(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct F32 {
  using Storage = float;
  static float widen(float x) { return x; }
};
struct BF16 {
  using Storage = uint16_t;
  static float widen(uint16_t x) { return from_bits(static_cast<uint32_t>(x) << 16); }
};
struct F16 {
  using Storage = uint16_t;
  static float widen(uint16_t x) {
    const uint32_t magnitude = static_cast<uint32_t>(x & 0x7fff) << 13;
    const float finite = from_bits(magnitude) * 0x1p112F;
    const float value = (x & 0x7c00) == 0x7c00 ? from_bits(magnitude | 0x7f800000U) : finite;
    return (x & 0x8000) != 0 ? -value : value;
  }
};

// out[d * step] = mean of `tokens` rows.
template <class Element>
void mean_rows(const void* data, int64_t offset, int64_t stride, int64_t tokens, int64_t dim,
               float* out, int64_t step) {
  constexpr int64_t kChunk = 64;
  float sums[kChunk];
  const auto* base = static_cast<const typename Element::Storage*>(data) + offset;
  const float share = 1.F / static_cast<float>(tokens);
  for (int64_t first = 0; first < dim; first += kChunk) {
    const int64_t size = std::min(kChunk, dim - first);
    std::fill_n(sums, size, 0.F);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto* row = base + t * stride + first;
      for (int64_t d = 0; d < size; ++d) sums[d] += Element::widen(row[d]);
    }
    for (int64_t d = 0; d < size; ++d) out[(first + d) * step] = sums[d] * share;
  }
}

void pool(DType dtype, const void* data, int64_t offset, int64_t stride, int64_t tokens,
          int64_t dim, float* out, int64_t step) {
  if (dtype == kF32) return mean_rows<F32>(data, offset, stride, tokens, dim, out, step);
  if (dtype == kF16) return mean_rows<F16>(data, offset, stride, tokens, dim, out, step);
  mean_rows<BF16>(data, offset, stride, tokens, dim, out, step);
}

// Log-sum-exp over pairs of cells. `q`: [q_cells][dim], already scaled; `k`: [dim][kCells].
template <int kCells>
float block_score(const float* q, int64_t q_cells, const float* k, int64_t k_cells, int64_t dim) {
  float scores[kCells * kCells];
  for (int64_t c = 0; c < q_cells; ++c) {
    float sums[kCells] = {};
    const float* row = q + c * dim;
    for (int64_t d = 0; d < dim; ++d) {
      for (int j = 0; j < kCells; ++j) sums[j] += row[d] * k[d * kCells + j];
    }
    std::copy_n(sums, k_cells, scores + c * k_cells);
  }
  const int64_t pairs = q_cells * k_cells;
  float max = -kInfinity;
  for (int64_t i = 0; i < pairs; ++i) {
    if (std::isnan(scores[i])) return scores[i];
    max = std::max(max, scores[i]);
  }
  if (!std::isfinite(max)) return max;
  float sum = 0;
  for (int64_t i = 0; i < pairs; ++i) sum += std::exp(scores[i] - max);
  return max + std::log(sum);
}

// Blocks kept of `blocks` unprotected ones.
int64_t budget(int64_t blocks, double sparsity) {
  if (blocks == 0) return 0;
  // Rounding of 1 - sparsity must not add a block.
  const double share = (1 - sparsity) * static_cast<double>(blocks);
  const auto wanted = static_cast<int64_t>(std::ceil(share - 1e-9 * static_cast<double>(blocks)));
  return std::min(blocks, ceil_div(std::max<int64_t>(wanted, 1), kBudgetStep) * kBudgetStep);
}

int64_t protected_blocks(const BlockTopk& options, int64_t columns) {
  return std::min(columns, ceil_div(options.protected_prefix, int64_t{options.block_size}));
}

}  // namespace

struct TopkSelection::Call {
  const void* q;
  const void* k;
  const void* lengths;
  bool wide;
  float* pooled;  // [B, Hkv, columns, dim, cells]
  int32_t* counts;
  int32_t* indices;
};

TopkSelection::TopkSelection(const Problem& problem, const BlockTopk& options)
    : problem_(problem),
      options_(options),
      block_(options.block_size),
      rows_(ceil_div(problem.seq_q, block_)),
      columns_(ceil_div(problem.seq_kv, block_)),
      most_(topk_count(options, problem.seq_kv)) {}

size_t TopkSelection::scratch_floats() const noexcept {
  const auto floats = static_cast<size_t>(cells() * problem_.head_dim + 2 * columns_);
  return round_up(floats * sizeof(float)) / sizeof(float);
}

size_t TopkSelection::workspace_bytes(int workers) const noexcept {
  if (!selects()) return 0;
  const int64_t pooled =
      problem_.batch * problem_.heads_kv * columns_ * problem_.head_dim * cells();
  return round_up(static_cast<size_t>(pooled) * sizeof(float)) +
         scratch_floats() * sizeof(float) * static_cast<size_t>(workers);
}

int64_t TopkSelection::kv_length(const Call& call, int64_t batch) const noexcept {
  if (call.lengths == nullptr) return problem_.seq_kv;
  return call.wide ? static_cast<const int64_t*>(call.lengths)[batch]
                   : static_cast<const int32_t*>(call.lengths)[batch];
}

void TopkSelection::pool_keys(const Call& call, int64_t item) const noexcept {
  const int64_t column = item % columns_;
  const int64_t head = item / columns_ % problem_.heads_kv;
  const int64_t batch = item / columns_ / problem_.heads_kv;
  const Strides& s = problem_.k_strides;
  const int64_t dim = problem_.head_dim;
  const int64_t length = kv_length(call, batch);
  float* out = call.pooled + item * dim * cells();
  std::fill_n(out, dim * cells(), 0.F);
  for (int64_t c = 0; c < cells(); ++c) {
    const int64_t first = column * block_ + c * kCellTokens;
    const int64_t tokens = std::min(kCellTokens, length - first);
    if (tokens <= 0) return;
    pool(problem_.dtype, call.k, batch * s.batch + head * s.head + first * s.seq, s.seq, tokens,
         dim, out + c, cells());
  }
}

void TopkSelection::choose_row(const Call& call, int64_t row, float* scratch) const noexcept {
  const int64_t head = row / rows_ % problem_.heads_q;
  const int64_t batch = row / rows_ / problem_.heads_q;
  const int64_t length = kv_length(call, batch);
  const int64_t columns = ceil_div(length, block_);
  const int64_t kept = topk_count(options_, length);
  int32_t* out = call.indices + row * most_;
  call.counts[row] = static_cast<int32_t>(kept);
  if (kept == columns) {
    for (int32_t n = 0; n < kept; ++n) out[n] = n;
    return;
  }

  const int64_t dim = problem_.head_dim;
  const Strides& s = problem_.q_strides;
  float* q = scratch;
  float* scores = q + cells() * dim;
  auto* order = reinterpret_cast<int32_t*>(scores + columns_);
  const auto scale = static_cast<float>(problem_.effective_scale());
  int64_t q_cells = 0;
  for (; q_cells < cells(); ++q_cells) {
    const int64_t first = row % rows_ * block_ + q_cells * kCellTokens;
    const int64_t tokens = std::min(kCellTokens, problem_.seq_q - first);
    if (tokens <= 0) break;
    float* cell = q + q_cells * dim;
    pool(problem_.dtype, call.q, batch * s.batch + head * s.head + first * s.seq, s.seq, tokens,
         dim, cell, 1);
    for (int64_t d = 0; d < dim; ++d) cell[d] *= scale;
  }

  const int64_t first = protected_blocks(options_, columns);
  const int64_t head_kv = head / (problem_.heads_q / problem_.heads_kv);
  const float* keys =
      call.pooled + (batch * problem_.heads_kv + head_kv) * columns_ * dim * cells();
  bool finite = true;
  for (int64_t column = first; column < columns; ++column) {
    const int64_t k_cells = std::min(cells(), ceil_div(length - column * block_, kCellTokens));
    const float* k = keys + column * dim * cells();
    scores[column] = cells() == 8 ? block_score<8>(q, q_cells, k, k_cells, dim)
                                  : block_score<4>(q, q_cells, k, k_cells, dim);
    finite = finite && std::isfinite(scores[column]);
  }
  // Ties go to the block that comes first; scores that cannot be compared to the first blocks.
  for (int32_t n = 0; n < columns; ++n) order[n] = n;
  if (finite) {
    std::nth_element(order + first, order + kept - 1, order + columns, [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order + first, order + kept);
  }
  std::copy_n(order, kept, out);
}

void TopkSelection::run(const void* q, const void* k, const void* lengths, bool wide,
                        void* workspace, Executor& executor, int32_t* counts,
                        int32_t* indices) const noexcept {
  const Call call{q, k, lengths, wide, static_cast<float*>(workspace), counts, indices};
  const int64_t items = problem_.batch * problem_.heads_kv * columns_;
  float* scratch = nullptr;
  if (selects()) {
    const auto pooled = static_cast<size_t>(items * problem_.head_dim * cells()) * sizeof(float);
    scratch = call.pooled + round_up(pooled) / sizeof(float);
    executor.parallel_for(items, [&](int64_t item, int) { pool_keys(call, item); });
  }
  executor.parallel_for(problem_.batch * problem_.heads_q * rows_, [&](int64_t row, int worker) {
    choose_row(call, row, scratch + static_cast<size_t>(worker) * scratch_floats());
  });
}

}  // namespace sparse

Status validate(const BlockTopk& options) {
  FOVEA_CHECK(sparse::check_block_size("block_size", options.block_size));
  if (!(options.sparsity >= 0 && options.sparsity <= 1)) {
    return sparse::invalid_argument("sparsity " + text::format_number(options.sparsity) +
                                    " is out of range (accepted: 0 to 1)");
  }
  return sparse::check_range("protected_prefix", options.protected_prefix, 0, sparse::kMaxBlocks);
}

int64_t topk_count(const BlockTopk& options, int64_t seq_kv) noexcept {
  const int64_t columns = sparse::ceil_div(seq_kv, int64_t{options.block_size});
  const int64_t kept = sparse::protected_blocks(options, columns);
  return kept + sparse::budget(columns - kept, options.sparsity);
}

Result<BlockMask> select_blocks(const BlockTopk& options, const AttentionTensors& tensors,
                                const Problem& problem, Executor& executor) {
  FOVEA_CHECK(validate(options));
  FOVEA_CHECK(validate(problem));
  if (problem.layout == Layout::packed) {
    return sparse::invalid_argument("packed documents have no blocks to choose from");
  }
  const BlockMaskShape shape{problem.seq_q,      problem.seq_kv, options.block_size,
                             options.block_size, problem.batch,  problem.heads_q};
  FOVEA_CHECK(sparse::check_shape(shape));
  Problem described = problem;
  described.has_kv_lengths = tensors.kv_lengths.present();
  const sparse::TopkSelection selection(described, options);
  const auto rows = static_cast<size_t>(shape.batch * shape.heads * shape.rows());
  std::vector<int32_t> counts(rows);
  std::vector<int32_t> indices(rows * static_cast<size_t>(selection.most()));
  std::vector<float> workspace(selection.workspace_bytes(executor.workers()) / sizeof(float));
  const TensorView& lengths = tensors.kv_lengths;
  selection.run(tensors.q.data, tensors.k.data, lengths.data, lengths.dtype == kI64,
                workspace.data(), executor, counts.data(), indices.data());
  return BlockMask::from_lists(shape, counts, indices);
}

}  // namespace fovea
