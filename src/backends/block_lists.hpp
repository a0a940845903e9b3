// Where the block lists of a problem come from; every backend that reads lists asks here, on every
// device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/sparse.hpp"
#include "src/core/list_shape.hpp"

namespace fovea::backends {

enum class ListSource : uint8_t {
  planned,   // known before the call: the plan keeps them, on a device after one upload
  given,     // AttentionTensors::block_counts and block_indices
  selected,  // chosen from q and k by every run
};

// Exactly one of mask and topk is set, none when the lists are given.
struct ListRequest {
  ListSource source = ListSource::given;
  ListShape shape;
  std::shared_ptr<const BlockMask> mask;  // planned
  std::optional<BlockTopk> topk;          // selected
  std::optional<double> density;          // share of blocks kept, when known before the call
};

// The first row of lists [rows] and [rows, most] that leaves out one of its first `blocks` blocks.
// Lists ascend (check_values). Nothing when every row keeps them.
std::optional<int64_t> row_without_prefix(std::span<const int32_t> counts, const int32_t* indices,
                                          int64_t most, int64_t blocks) noexcept;

// The request, or why this backend name cannot have one.
struct ListAnswer {
  std::optional<ListRequest> request;
  std::vector<Reason> reasons;
};

// `spec` may be null. Of protected keys (context.protected_kv_prefix) selections keep the blocks; a
// mask known before the call must have them in every row. Names and their patterns: RADIAL_ATTN
// radial, LOCAL_SPARSE_ATTN local, SPARGE_ATTN topk; BLOCK_SPARSE_ATTN and REFERENCE any.
ListAnswer read_lists(BackendName name, const Problem& problem, const AttentionSpec* spec,
                      const ExecutionContext& context);

}  // namespace fovea::backends
