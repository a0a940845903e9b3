// The tensors of a call as a list, for code that treats them alike.
#pragma once

#include "fovea/backend.hpp"

namespace fovea {

struct TensorMember {
  const char* name;
  TensorView AttentionTensors::*view;
  bool output;
};
inline constexpr TensorMember kTensorMembers[] = {
    {"q", &AttentionTensors::q, false},
    {"k", &AttentionTensors::k, false},
    {"v", &AttentionTensors::v, false},
    {"mask", &AttentionTensors::mask, false},
    {"kv_lengths", &AttentionTensors::kv_lengths, false},
    {"cu_seqlens_q", &AttentionTensors::cu_seqlens_q, false},
    {"cu_seqlens_kv", &AttentionTensors::cu_seqlens_kv, false},
    {"block_counts", &AttentionTensors::block_counts, false},
    {"block_indices", &AttentionTensors::block_indices, false},
    {"block_partial", &AttentionTensors::block_partial, false},
    {"out", &AttentionTensors::out, true},
    {"lse", &AttentionTensors::lse, true}};

}  // namespace fovea
