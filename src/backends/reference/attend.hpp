// Attention in float64, row by row, as the contract words it. Everything else is measured against
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/executor.hpp"
#include "fovea/problem.hpp"
#include "fovea/sparse.hpp"

namespace fovea::backends::reference {

// The blocks of keys that every block of queries reads, ascending: counts and indices of [batch,
// heads, rows], `most` indices each. Nothing is owned.
struct BlockLists {
  const int32_t* counts = nullptr;
  const int32_t* indices = nullptr;
  int64_t batch_stride = 0;  // rows of lists, 0 where shared
  int64_t head_stride = 0;
  int64_t most = 0;
  int64_t block_q = 128;
  int64_t block_kv = 128;
};
BlockLists block_lists(const BlockMask& mask) noexcept;

// One finished query row. `out` holds dim_v values and is valid during the call only.
struct Row {
  int64_t batch = 0;  // 0 when packed
  int64_t head = 0;
  int64_t index = 0;  // along q's sequence axis
  const double* out = nullptr;
  double lse = 0;
  double magnitude = 0;    // largest finite visible |scale q.k + bias|; 0 when none
  bool deep_bias = false;  // sees keys, and every visible bias is below -2^20
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // Called once per row, from several workers at once, in no fixed order.
  virtual void row(const Row& row) noexcept = 0;
};

// Splits a problem into tiles of a few query rows of one head. The tensors must be those of the
// problem (see check_tensors) with checked values; out and lse are not read. Thread-safe.
class Tiles {
 public:
  // `lists`, which may be null, hide every key outside their blocks.
  Tiles(const Problem& problem, const AttentionTensors& tensors,
        const BlockLists* lists = nullptr) noexcept
      : problem_(problem), tensors_(tensors), lists_(lists) {}

  int64_t count() const noexcept;
  // `scratch` has scratch_bytes(problem) bytes, aligned to 8, and belongs to this call.
  void run(int64_t tile, void* scratch, RowSink& sink) const noexcept;

 private:
  const Problem& problem_;
  const AttentionTensors& tensors_;
  const BlockLists* lists_;
};

// Scratch of one worker: proportional to seq_kv, head_dim and dim_v.
size_t scratch_bytes(const Problem& problem) noexcept;

// Unrounded results, contiguous: out [B,Sq,Hq,Dv] in problem.out_layout (packed [Tq,Hq,Dv]); lse
// and deep_bias [B,Hq,Sq] (packed [Hq,Tq]).
struct Oracle {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<uint8_t> deep_bias;  // rows that are only meaningful in closed form
  double magnitude = 0;            // over all other rows
};

// The oracle's answer for tensors that match `problem`. Checks them as a run does. A sparse problem
// takes its blocks from `mask`, else from the tensors' block lists. Errors: invalid_tensor,
// invalid_value, unsupported (a sparse problem without either).
Result<Oracle> compute_oracle(const Problem& problem, const AttentionTensors& tensors,
                              Executor& executor, const BlockMask* mask = nullptr);
// The block lists of a call whose problem has them, checked.
std::optional<BlockLists> given_lists(const Problem& problem,
                                      const AttentionTensors& tensors) noexcept;

// What compute_oracle refuses: tensors that do not match, values out of range, a sparse problem
// without blocks. Else the blocks it reads, if any; they point into `mask` or the tensors.
Result<std::optional<BlockLists>> oracle_lists(const Problem& problem,
                                               const AttentionTensors& tensors,
                                               const BlockMask* mask);

// Offset of a row's first output value, and of its LSE.
int64_t out_offset(const Problem& problem, const Row& row) noexcept;
int64_t lse_offset(const Problem& problem, const Row& row) noexcept;

}  // namespace fovea::backends::reference
