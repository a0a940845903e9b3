// The tensors of a call: read from a file, and the outputs that it needs.
#pragma once

#include <string>

#include "fovea/attention.hpp"
#include "src/core/safetensors.hpp"

namespace fovea::cli {

// `prefix`q, k and v, and those of mask, kv_lengths, cu_seqlens_q and cu_seqlens_kv (or
// cu_seqlens_k) that the file has. Views into the file. Error invalid_file: a missing tensor names
// the prefixes that would fit.
Result<AttentionTensors> attention_inputs(const SafetensorsFile& file, const std::string& origin,
                                          const std::string& prefix);

// `prefix` + `name` if the file has it, else `name`.
struct FoundTensor {
  std::string name;
  TensorView view;
};
Result<FoundTensor> find_tensor(const SafetensorsFile& file, const std::string& prefix,
                                const std::string& name);

// Memory for the outputs of a call.
struct CallOutputs {
  OwnedTensor out;
  OwnedTensor lse;  // absent unless the options ask for it

  // Puts them into `tensors`, which must not outlive this object.
  void place(AttentionTensors& tensors) const;
};
Result<CallOutputs> allocate_outputs(const AttentionTensors& inputs, const CallOptions& options);

}  // namespace fovea::cli
