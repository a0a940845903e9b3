// Chooses the blocks of keys of a call from pooled queries and keys, without allocating.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/executor.hpp"
#include "fovea/problem.hpp"
#include "fovea/sparse.hpp"

namespace fovea::sparse {

// Tokens that are averaged before scores are taken.
inline constexpr int64_t kCellTokens = 16;
// The budget is a multiple of this many blocks.
inline constexpr int64_t kBudgetStep = 8;

// Immutable; thread-safe for distinct workspaces.
class TopkSelection {
 public:
  TopkSelection(const Problem& problem, const BlockTopk& options);

  int64_t rows() const noexcept { return rows_; }
  // Indices of a row: what every row has where all keys exist.
  int64_t most() const noexcept { return most_; }
  size_t workspace_bytes(int workers) const noexcept;

  // Writes counts [B, Hq, rows()] and indices [B, Hq, rows(), most()], ascending. `lengths`: int32
  // or int64 (wide) [B], or null. `workspace` is aligned as floats are.
  void run(const void* q, const void* k, const void* lengths, bool wide, void* workspace,
           Executor& executor, int32_t* counts, int32_t* indices) const noexcept;

 private:
  struct Call;
  // Whether some row may leave blocks out: a shorter item may keep a smaller share of its own.
  bool selects() const noexcept { return problem_.has_kv_lengths || most_ < columns_; }
  int64_t cells() const noexcept { return block_ / kCellTokens; }
  size_t scratch_floats() const noexcept;
  void pool_keys(const Call& call, int64_t item) const noexcept;
  void choose_row(const Call& call, int64_t row, float* scratch) const noexcept;
  int64_t kv_length(const Call& call, int64_t batch) const noexcept;

  Problem problem_;
  BlockTopk options_;
  int64_t block_ = 128;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t most_ = 0;
};

}  // namespace fovea::sparse
