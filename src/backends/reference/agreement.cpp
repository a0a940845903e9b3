#include "src/backends/reference/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/element.hpp"

namespace fovea::backends::reference {
namespace {

constexpr int64_t kFewestTiles = 16;

bool passes(const Agreement& a) {
  return within(a.out, a.tolerance.rel_l2) && a.lse.nonfinite_mismatches == 0 &&
         a.lse.max_abs <= a.tolerance.lse;
}

// The i-th of `wanted` tiles out of `count`: one in every equal part, at changing places in it, so
// that a period of heads or positions is not always hit in the same place; the last tile is one.
int64_t sampled(int64_t i, int64_t wanted, int64_t count) {
  if (wanted == count || i == wanted - 1) return i == wanted - 1 ? count - 1 : i;
  constexpr double kGolden = 0.6180339887498949;
  const double place = static_cast<double>(i) * kGolden;
  const double part = static_cast<double>(count) / static_cast<double>(wanted);
  return static_cast<int64_t>((static_cast<double>(i) + place - std::floor(place)) * part);
}

// Keeps the rows of one tile.
class KeptRows final : public RowSink {
 public:
  struct Kept {
    Row row;
    std::vector<double> out;
  };
  explicit KeptRows(int64_t dim_v) : dim_v_(dim_v) {}

  void row(const Row& row) noexcept override {
    rows_.push_back({row, std::vector<double>(row.out, row.out + dim_v_)});
  }
  const std::vector<Kept>& rows() const noexcept { return rows_; }

 private:
  int64_t dim_v_;
  std::vector<Kept> rows_;
};

}  // namespace

Agreement compare_to_oracle(const Problem& p, const AttentionTensors& t, const Oracle& oracle,
                            DataKind data) {
  Agreement a;
  a.tolerance = exact_tolerance(p.dtype, p.out_dtype, data, oracle.magnitude);
  Comparer out;
  Comparer lse;
  const int64_t items = p.layout == Layout::packed ? 1 : p.batch;
  Row row;
  for (row.batch = 0; row.batch < items; ++row.batch)
    for (row.head = 0; row.head < p.heads_q; ++row.head)
      for (row.index = 0; row.index < p.seq_q; ++row.index) {
        const int64_t at = lse_offset(p, row);
        if (oracle.deep_bias[static_cast<size_t>(at)] != 0) {
          ++a.rows_left_out;
          continue;
        }
        if (p.lse) lse.add(load_element(t.lse.data, kF32, at), oracle.lse[static_cast<size_t>(at)]);
        const int64_t base = out_offset(p, row);
        for (int64_t d = base; d < base + p.dim_v; ++d)
          out.add(load_element(t.out.data, p.out_dtype, d), oracle.out[static_cast<size_t>(d)]);
        ++a.rows;
      }
  a.out = out.result();
  a.lse = lse.result();
  a.pass = passes(a);
  return a;
}

Result<Agreement> agree_with_oracle(const Problem& p, const AttentionTensors& t, Executor& executor,
                                    DataKind data, double flops, const BlockMask* mask) {
  FOVEA_TRY(const std::optional<BlockLists> lists, oracle_lists(p, t, mask));
  const Tiles tiles(p, t, lists ? &*lists : nullptr);
  const int64_t count = tiles.count();
  const double share = std::min(1.0, flops / std::max(flop_count(p), 1.0));
  const int64_t wanted = share == 1.0
                             ? count
                             : std::clamp(static_cast<int64_t>(share * static_cast<double>(count)),
                                          std::min<int64_t>(count, kFewestTiles), count);
  std::vector<KeptRows> kept(static_cast<size_t>(wanted), KeptRows(p.dim_v));
  const size_t doubles = scratch_bytes(p) / sizeof(double) + 1;
  std::vector<double> scratch(doubles * static_cast<size_t>(executor.workers()));
  executor.parallel_for(wanted, [&](int64_t i, int worker) {
    tiles.run(sampled(i, wanted, count), scratch.data() + static_cast<size_t>(worker) * doubles,
              kept[static_cast<size_t>(i)]);
  });
  Agreement a;
  Comparer out;
  Comparer lse;
  double magnitude = 0;
  for (const KeptRows& tile : kept)
    for (const KeptRows::Kept& row : tile.rows()) {
      if (row.row.deep_bias) {
        ++a.rows_left_out;
        continue;
      }
      magnitude = std::max(magnitude, row.row.magnitude);
      if (p.lse) lse.add(load_element(t.lse.data, kF32, lse_offset(p, row.row)), row.row.lse);
      const int64_t base = out_offset(p, row.row);
      for (int64_t d = 0; d < p.dim_v; ++d)
        out.add(load_element(t.out.data, p.out_dtype, base + d), row.out[static_cast<size_t>(d)]);
      ++a.rows;
    }
  a.tolerance = exact_tolerance(p.dtype, p.out_dtype, data, magnitude);
  a.out = out.result();
  a.lse = lse.result();
  a.pass = passes(a);
  return a;
}

}  // namespace fovea::backends::reference
