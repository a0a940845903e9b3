// Joint attention: a second stream of tokens, such as text, that attends and is attended to
// together with those of the call.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/attention.hpp"
#include "fovea/error.hpp"
#include "fovea/owned_tensor.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// Where the joint tokens stand: in front of those of the call, or behind them.
enum class JointStrategy : uint8_t { front, rear };
FOVEA_API std::string_view name(JointStrategy strategy) noexcept;

// In the layout of the call and with its batch, heads, sizes and type; Sj tokens of their own.
// Nothing is owned.
struct JointTensors {
  TensorView q;  // [B,Sj,Hq,D]
  TensorView k;  // [B,Sj,Hkv,D]
  TensorView v;  // [B,Sj,Hkv,Dv]
  JointStrategy strategy = JointStrategy::front;
  // Key padding of the joint tokens, [1|B,Sj]. With it the mask of the call is of the call's own
  // keys, [1|B,S] of the same type, or absent; a stream without one is seen whole.
  TensorView mask = {};
};

struct JointResult {
  OwnedTensor out;    // [B,Sj+S,Hq,Dv] in the output layout, tokens in the order of the strategy
  OwnedTensor lse;    // [B,Hq,Sj+S], absent unless asked for
  TensorView tokens;  // the rows of `out` that belong to the call, [B,S,Hq,Dv]
  TensorView joint;   // those of the joint tokens, [B,Sj,Hq,Dv]
  std::shared_ptr<const Receipt> receipt;  // `copies` names the tensors that were joined
};

// The call on the joined sequence, to the bit what the layer gives for tensors that are joined
// beforehand. Everything else that the call says is about that sequence: lengths and, without a
// joint mask, the mask cover Sj + S keys, diagonals, windows, block masks and metadata count its
// positions. On the CPU; elsewhere join the tensors on the device. Errors: invalid_tensor and
// invalid_argument name the tensor that does not fit; unsupported for the packed layout and other
// devices; those of the layer. Thread-safe.
FOVEA_API Result<JointResult> attend_jointly(const Attention& layer,
                                             const AttentionTensors& tensors,
                                             const JointTensors& joint,
                                             const CallOptions& options = {});

// The same into tensors.out and tensors.lse, which are of the joined sequence. Thread-safe.
FOVEA_API Result<std::shared_ptr<const Receipt>> run_jointly(const Attention& layer,
                                                             const AttentionTensors& tensors,
                                                             const JointTensors& joint,
                                                             const CallOptions& options = {});

}  // namespace fovea
