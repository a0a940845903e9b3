// Where the block lists of a problem come from; every backend that reads lists asks here, on every
// device.
#pragma once

#include <memory>
#include <optional>
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

// The request, or why this backend name cannot have one.
struct ListAnswer {
  std::optional<ListRequest> request;
  std::vector<Reason> reasons;
};

// `spec` may be null. Names and their patterns: RADIAL_ATTN radial, LOCAL_SPARSE_ATTN local,
// SPARGE_ATTN topk; BLOCK_SPARSE_ATTN and REFERENCE any.
ListAnswer read_lists(BackendName name, const Problem& problem, const AttentionSpec* spec,
                      const ExecutionContext& context);

}  // namespace fovea::backends
