#include "src/backends/reference/attend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "fovea/attention.hpp"
#include "src/backends/reference/elements.hpp"
#include "src/backends/run_tensors.hpp"
#include "src/core/list_shape.hpp"

namespace fovea::backends::reference {
namespace {

constexpr int64_t kTileRows = 8;
constexpr double kDeepBias = -1048576.0;  // -2^20
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The three offsets that address one head of one item, whatever the layout.
struct HeadView {
  const void* data;
  int64_t base;
  int64_t seq_stride;
};

HeadView head_view(const TensorView& t, Layout layout, int64_t batch, int64_t head) noexcept {
  if (layout == Layout::packed) return {t.data, head * t.stride[1], t.stride[0]};
  const int head_axis = layout == Layout::bshd ? 2 : 1;
  const int seq_axis = 3 - head_axis;
  return {t.data, batch * t.stride[0] + head * t.stride[static_cast<size_t>(head_axis)],
          t.stride[static_cast<size_t>(seq_axis)]};
}

void read_vector(const HeadView& view, DType dtype, int64_t index, std::span<double> out) noexcept {
  read(view.data, dtype, view.base + index * view.seq_stride, out.data(), out.size());
}

double dot(const double* a, const double* b, size_t n) noexcept {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (size_t u = 0; u < 4; ++u) sums[u] += a[i + u] * b[i + u];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// What the mask tensor says of one (row, key): hidden, or a bias to add.
class MaskRow {
 public:
  MaskRow() = default;
  MaskRow(const TensorView& mask, int64_t batch, int64_t head, int64_t row) noexcept {
    if (!mask.present()) return;
    data_ = mask.data;
    dtype_ = mask.dtype;
    const auto step = [&](int axis, int64_t index) {
      const auto a = static_cast<size_t>(axis);
      return mask.shape[a] == 1 ? 0 : index * mask.stride[a];
    };
    offset_ = step(0, batch);
    if (mask.rank == 3) offset_ += step(1, row);
    if (mask.rank == 4) offset_ += step(1, head) + step(2, row);
    key_stride_ = mask.stride[static_cast<size_t>(mask.rank - 1)];
  }

  // False: hidden. `bias` is written when visible.
  bool visible(int64_t key, double& bias) const noexcept {
    bias = 0;
    if (data_ == nullptr) return true;
    const int64_t at = offset_ + key * key_stride_;
    if (dtype_ == kBool || dtype_ == kU8) return static_cast<const uint8_t*>(data_)[at] != 0;
    if (dtype_ == kI32) return static_cast<const int32_t*>(data_)[at] != 0;
    if (dtype_ == kI64) return static_cast<const int64_t*>(data_)[at] != 0;
    bias = read(data_, dtype_, at);
    return bias != -kInfinity;
  }

 private:
  const void* data_ = nullptr;  // null: no mask
  DType dtype_;
  int64_t offset_ = 0;
  int64_t key_stride_ = 0;
};

// One batch item or document: `rows` queries from q_begin, `keys` keys from kv_begin.
struct Item {
  int64_t batch = 0;
  int64_t q_begin = 0;
  int64_t kv_begin = 0;
  int64_t rows = 0;
  int64_t keys = 0;
};

// Keys [first, last] that pieces, causal and window leave to row `i` of an item.
struct KeyRange {
  int64_t first;
  int64_t last;
};
KeyRange key_range(const Problem& p, const Item& item, int64_t i) noexcept {
  int64_t piece_end = 0;
  for (const Piece& piece : p.pieces) {
    piece_end += piece.rows;
    if (i < piece_end) return {0, piece.keys - 1 - (piece.causal ? piece_end - 1 - i : 0)};
  }
  const int64_t diagonal = i + (item.keys - item.rows);
  const int64_t right = p.causal ? 0 : p.window.right;
  KeyRange range{0, item.keys - 1};
  if (p.window.left >= 0 && p.window.left < diagonal) range.first = diagonal - p.window.left;
  if (right >= 0 && right < item.keys - 1 - diagonal) range.last = diagonal + right;
  return range;
}

// Carves a worker's scratch memory.
struct Scratch {
  Scratch(const Problem& p, void* memory) noexcept {
    auto* next = static_cast<double*>(memory);
    const auto take = [&](int64_t n) {
      double* taken = next;
      next += n;
      return std::span<double>(taken, static_cast<size_t>(n));
    };
    queries = take(kTileRows * p.head_dim);
    key = take(p.head_dim);
    outs = take(kTileRows * p.dim_v);
    value = take(p.dim_v);
    scores = take(kTileRows * p.seq_kv);
    visible = {reinterpret_cast<uint8_t*>(next), static_cast<size_t>(kTileRows * p.seq_kv)};
  }

  std::span<double> queries;  // [tile row][head_dim]
  std::span<double> key;
  std::span<double> outs;  // [tile row][dim_v]
  std::span<double> value;
  std::span<double> scores;    // [tile row][key of the item]
  std::span<uint8_t> visible;  // same
};

// Whether a key lies in one of the listed blocks; asked for ascending keys. A tile of rows lies in
// one block of queries.
class ListedKeys {
 public:
  ListedKeys(const BlockLists* lists, int64_t batch, int64_t head, int64_t row) noexcept
      : lists_(lists) {
    if (lists == nullptr) return;
    const int64_t at =
        batch * lists->batch_stride + head * lists->head_stride + row / lists->block_q;
    next_ = lists->indices + at * lists->most;
    end_ = next_ + lists->counts[at];
  }

  bool visible(int64_t key) noexcept {
    if (lists_ == nullptr) return true;
    const int64_t block = key / lists_->block_kv;
    while (next_ != end_ && *next_ < block) ++next_;
    return next_ != end_ && *next_ == block;
  }

 private:
  const BlockLists* lists_;
  const int32_t* next_ = nullptr;
  const int32_t* end_ = nullptr;
};

// Rows [begin, end) of an item, at most kTileRows, for one head. Two passes over the keys: scores
// and their largest, then weights and values.
void attend_rows(const Problem& p, const AttentionTensors& t, const BlockLists* lists,
                 const Item& item, int64_t head, int64_t begin, int64_t end, void* memory,
                 RowSink& sink) noexcept {
  const int64_t kv_head = head / (p.heads_q / p.heads_kv);
  const HeadView q = head_view(t.q, p.layout, item.batch, head);
  const HeadView k = head_view(t.k, p.layout, item.batch, kv_head);
  const HeadView v = head_view(t.v, p.layout, item.batch, kv_head);
  const double scale = p.effective_scale();
  const auto dim = static_cast<size_t>(p.head_dim);
  const auto dim_v = static_cast<size_t>(p.dim_v);
  const auto rows = static_cast<size_t>(end - begin);
  const Scratch s(p, memory);

  Row results[kTileRows];
  KeyRange ranges[kTileRows];
  MaskRow masks[kTileRows];
  double largest[kTileRows];
  bool any_nan[kTileRows] = {};
  bool any_key[kTileRows] = {};
  bool shallow[kTileRows] = {};
  int64_t first = item.keys;
  int64_t last = -1;
  for (size_t r = 0; r < rows; ++r) {
    const int64_t i = begin + static_cast<int64_t>(r);
    results[r] = {item.batch, head, item.q_begin + i, s.outs.data() + r * dim_v, 0, 0, false};
    ranges[r] = key_range(p, item, i);
    masks[r] = MaskRow(t.mask, item.batch, head, i);
    largest[r] = -kInfinity;
    first = std::min(first, ranges[r].first);
    last = std::max(last, ranges[r].last);
    read_vector(q, p.dtype, item.q_begin + i, s.queries.subspan(r * dim, dim));
  }

  const auto stride = static_cast<size_t>(p.seq_kv);
  ListedKeys listed(lists, item.batch, head, begin);
  for (int64_t j = first; j <= last; ++j) {
    bool loaded = false;
    const bool on = listed.visible(j);
    for (size_t r = 0; r < rows; ++r) {
      const size_t at = r * stride + static_cast<size_t>(j);
      s.visible[at] = 0;
      if (!on || j < ranges[r].first || j > ranges[r].last) continue;
      double bias;
      if (!masks[r].visible(j, bias)) continue;
      if (!loaded) read_vector(k, p.dtype, item.kv_begin + j, s.key);
      loaded = true;
      const double score = scale * dot(s.queries.data() + r * dim, s.key.data(), dim) + bias;
      s.visible[at] = 1;
      s.scores[at] = score;
      any_key[r] = true;
      shallow[r] = shallow[r] || !(bias < kDeepBias);
      if (std::isnan(score)) any_nan[r] = true;
      if (score > largest[r]) largest[r] = score;
      if (std::isfinite(score))
        results[r].magnitude = std::max(results[r].magnitude, std::abs(score));
    }
  }

  std::fill(s.outs.begin(), s.outs.end(), 0.0);
  double sums[kTileRows] = {};
  for (int64_t j = first; j <= last; ++j) {
    bool loaded = false;
    for (size_t r = 0; r < rows; ++r) {
      const size_t at = r * stride + static_cast<size_t>(j);
      if (s.visible[at] == 0) continue;
      if (!loaded) read_vector(v, p.dtype, item.kv_begin + j, s.value);
      loaded = true;
      // When every visible score is -inf the weights are 0, not exp(-inf + inf).
      const double weight = largest[r] == -kInfinity ? 0.0 : std::exp(s.scores[at] - largest[r]);
      sums[r] += weight;
      double* out = s.outs.data() + r * dim_v;
      for (size_t d = 0; d < dim_v; ++d) out[d] += weight * s.value[d];
    }
  }

  for (size_t r = 0; r < rows; ++r) {
    double* out = s.outs.data() + r * dim_v;
    if (any_nan[r]) {
      std::fill(out, out + dim_v, std::numeric_limits<double>::quiet_NaN());
      results[r].lse = std::numeric_limits<double>::quiet_NaN();
    } else if (sums[r] == 0) {
      results[r].lse = -kInfinity;
    } else {
      for (size_t d = 0; d < dim_v; ++d) out[d] /= sums[r];
      results[r].lse = largest[r] + std::log(sums[r]);
    }
    results[r].deep_bias = any_key[r] && !shallow[r];
    sink.row(results[r]);
  }
}

int64_t tiles_per_head(const Problem& p) noexcept { return (p.seq_q + kTileRows - 1) / kTileRows; }

int64_t read_index(const TensorView& t, int64_t i) noexcept {
  return t.dtype == kI32 ? static_cast<const int32_t*>(t.data)[i]
                         : static_cast<const int64_t*>(t.data)[i];
}

class OracleSink final : public RowSink {
 public:
  OracleSink(const Problem& problem, Oracle& oracle, std::vector<double>& magnitudes) noexcept
      : problem_(problem), oracle_(oracle), magnitudes_(magnitudes) {}

  void row(const Row& row) noexcept override {
    const auto dim_v = static_cast<size_t>(problem_.dim_v);
    std::copy_n(row.out, dim_v,
                oracle_.out.begin() + static_cast<ptrdiff_t>(out_offset(problem_, row)));
    const auto at = static_cast<size_t>(lse_offset(problem_, row));
    oracle_.lse[at] = row.lse;
    oracle_.deep_bias[at] = row.deep_bias ? 1 : 0;
    magnitudes_[at] = row.deep_bias ? 0 : row.magnitude;
  }

 private:
  const Problem& problem_;
  Oracle& oracle_;
  std::vector<double>& magnitudes_;
};

}  // namespace

size_t scratch_bytes(const Problem& p) noexcept {
  const int64_t doubles = (kTileRows + 1) * (p.head_dim + p.dim_v) + kTileRows * p.seq_kv;
  return static_cast<size_t>(doubles) * sizeof(double) + static_cast<size_t>(kTileRows * p.seq_kv);
}

int64_t Tiles::count() const noexcept {
  const int64_t items = problem_.layout == Layout::packed ? 1 : problem_.batch;
  return items * problem_.heads_q * tiles_per_head(problem_);
}

void Tiles::run(int64_t tile, void* scratch, RowSink& sink) const noexcept {
  const Problem& p = problem_;
  const int64_t per_head = tiles_per_head(p);
  const int64_t head = tile / per_head % p.heads_q;
  const int64_t begin = tile % per_head * kTileRows;
  const int64_t end = std::min(begin + kTileRows, p.seq_q);
  if (p.layout != Layout::packed) {
    const int64_t batch = tile / per_head / p.heads_q;
    const int64_t keys = p.has_kv_lengths ? read_index(tensors_.kv_lengths, batch) : p.seq_kv;
    attend_rows(p, tensors_, lists_, {batch, 0, 0, p.seq_q, keys}, head, begin, end, scratch, sink);
    return;
  }
  // The tile may span several documents; each takes its own part.
  for (int64_t n = 0; n < p.documents; ++n) {
    const int64_t q_begin = read_index(tensors_.cu_seqlens_q, n);
    const int64_t q_end = read_index(tensors_.cu_seqlens_q, n + 1);
    const int64_t from = std::max(begin, q_begin);
    const int64_t to = std::min(end, q_end);
    if (from >= to) continue;
    const int64_t kv_begin = read_index(tensors_.cu_seqlens_kv, n);
    const int64_t kv_end = read_index(tensors_.cu_seqlens_kv, n + 1);
    attend_rows(p, tensors_, nullptr, {0, q_begin, kv_begin, q_end - q_begin, kv_end - kv_begin},
                head, from - q_begin, to - q_begin, scratch, sink);
  }
}

int64_t out_offset(const Problem& p, const Row& row) noexcept {
  if (p.out_layout == Layout::bhsd)
    return ((row.batch * p.heads_q + row.head) * p.seq_q + row.index) * p.dim_v;
  return ((row.batch * p.seq_q + row.index) * p.heads_q + row.head) * p.dim_v;
}

int64_t lse_offset(const Problem& p, const Row& row) noexcept {
  return (row.batch * p.heads_q + row.head) * p.seq_q + row.index;
}

BlockLists block_lists(const BlockMask& mask) noexcept {
  const BlockMaskShape& s = mask.shape();
  BlockLists lists;
  lists.counts = mask.counts().data();
  lists.indices = mask.indices().data();
  if (s.heads > 1) lists.head_stride = s.rows();
  if (s.batch > 1) lists.batch_stride = s.heads * s.rows();
  lists.most = mask.max_count();
  lists.block_q = s.block_q;
  lists.block_kv = s.block_kv;
  return lists;
}

std::optional<BlockLists> given_lists(const Problem& problem,
                                      const AttentionTensors& tensors) noexcept {
  const std::optional<ListShape> shape = list_shape(problem);
  if (!shape) return std::nullopt;
  const int64_t rows = (problem.seq_q + shape->block_q - 1) / shape->block_q;
  BlockLists lists;
  lists.counts = static_cast<const int32_t*>(tensors.block_counts.data);
  lists.indices = static_cast<const int32_t*>(tensors.block_indices.data);
  if (shape->heads > 1) lists.head_stride = rows;
  if (shape->batch > 1) lists.batch_stride = shape->heads * rows;
  lists.most = shape->most;
  lists.block_q = shape->block_q;
  lists.block_kv = shape->block_kv;
  return lists;
}

Result<std::optional<BlockLists>> oracle_lists(const Problem& problem,
                                               const AttentionTensors& tensors,
                                               const BlockMask* mask) {
  FOVEA_CHECK(check_inputs(problem, tensors));
  FOVEA_CHECK(check_values(tensors, problem));
  std::optional<BlockLists> lists =
      mask != nullptr ? block_lists(*mask) : given_lists(problem, tensors);
  if (problem.sparse && !lists)
    return Error{ErrorCode::unsupported,
                 "the oracle needs the blocks of a sparse pattern",
                 {{ReasonCode::sparse, "sparse", problem.sparse->name, "a block mask", {}}}};
  return lists;
}

Result<Oracle> compute_oracle(const Problem& problem, const AttentionTensors& tensors,
                              Executor& executor, const BlockMask* mask) {
  FOVEA_TRY(const std::optional<BlockLists> lists, oracle_lists(problem, tensors, mask));
  const int64_t items = problem.layout == Layout::packed ? 1 : problem.batch;
  const auto rows = static_cast<size_t>(items * problem.heads_q * problem.seq_q);
  Oracle oracle;
  oracle.out.resize(rows * static_cast<size_t>(problem.dim_v));
  oracle.lse.resize(rows);
  oracle.deep_bias.resize(rows);
  std::vector<double> magnitudes(rows);
  OracleSink sink(problem, oracle, magnitudes);
  const Tiles tiles(problem, tensors, lists ? &*lists : nullptr);
  const size_t doubles = scratch_bytes(problem) / sizeof(double) + 1;
  std::vector<double> scratch(doubles * static_cast<size_t>(executor.workers()));
  executor.parallel_for(tiles.count(), [&](int64_t tile, int worker) {
    tiles.run(tile, scratch.data() + static_cast<size_t>(worker) * doubles, sink);
  });
  for (double m : magnitudes) oracle.magnitude = std::max(oracle.magnitude, m);
  return oracle;
}

}  // namespace fovea::backends::reference
