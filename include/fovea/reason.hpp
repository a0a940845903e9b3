// Reasons are data; sentences are made from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

// Why a path, a device or a configuration refuses something. Names are stable.
enum class ReasonCode : uint16_t {
  // The problem.
  dtype,         // element type of q, k, v
  output_dtype,  // element type of the output
  head_dim,      // size of a query/key head
  dim_v,         // size of a value head
  heads,         // head counts or their ratio (GQA)
  seq_limit,     // a length beyond what the path handles
  layout,        // tensor layout
  strides,       // strides the path cannot read in place
  alignment,     // base address or stride alignment
  mask,          // kind of mask
  mask_dtype,    // element type of the mask
  causal,        // causal masking
  window,        // local window
  kv_lengths,    // per-item key lengths
  packed,        // packed documents
  piecewise,     // mixed causal and full attention
  metadata,      // what the caller states about masks and lengths contradicts itself or the call
  lse,           // log-sum-exp output
  scale,         // softmax scale
  sparse,        // sparse pattern or its geometry
  sparse_state,  // sparse run-time state missing or unfit
  schedule,      // step or layer schedule
  // The execution context.
  platform,      // platform the backend does not run on
  architecture,  // device architecture
  isa,           // CPU instruction set
  version,       // driver, toolkit or library version
  package,       // package or symbol missing
  parallel,      // sequence-parallel strategy
  compilation,   // full-graph compilation or capture
  unvalidated,   // runs, but no validation record covers it
  prepared,      // tensors prepared ahead of the call
  boundary,      // outer boundary such as sharded modules
  paged_kv,      // paged key/value storage
  // The configuration.
  option_owner,  // an option block given to a backend that does not own it
  option_value,  // a value the backend narrows away
  provider,      // the requested provider
  mask_free,     // automatic choice limited to mask-free models
  // The binary.
  not_built,       // no kernel in this binary
  not_registered,  // nothing stands behind the name
  plugin,          // a plugin refused or misbehaved
  not_automatic,   // a backend that is never chosen automatically
  assumed,         // a fact that an answer takes for granted
  known_fault,     // a version known to give wrong results
};

// One refusal. `field` is what was judged, `got` what was asked, `accepted` what would have been
// accepted (may be empty when nothing would), `remedy` what the user can do (may be empty).
struct Reason {
  ReasonCode code = ReasonCode::not_built;
  std::string field;
  std::string got;
  std::string accepted;
  std::string remedy = {};

  bool operator==(const Reason&) const = default;
};

// The stable lower-case name of a code, e.g. "head_dim". Thread-safe; static storage.
__attribute__((visibility("default"))) std::string_view name(ReasonCode code) noexcept;

// One clause, without a full stop: "head_dim 80 is not supported (accepted: 64, 128)".
// Thread-safe; allocates the result.
__attribute__((visibility("default"))) std::string sentence(const Reason& reason);

// The clauses of all reasons joined by "; ". Thread-safe.
__attribute__((visibility("default"))) std::string sentence(const std::vector<Reason>& reasons);

}  // namespace fovea
