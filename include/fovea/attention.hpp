// The object most users touch: one attention layer, built once, called many times.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/calibration.hpp"
#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/metadata.hpp"
#include "fovea/owned_tensor.hpp"
#include "fovea/prepared.hpp"
#include "fovea/receipt.hpp"
#include "fovea/recorded_call.hpp"
#include "fovea/select.hpp"

namespace fovea {

class BlockMask;
class SparseAttentionState;

// Shape and strides (elements, contiguous) of an output.
struct OutputSpec {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};
struct OutputSpecs {
  OutputSpec out;  // [B,Sq,Hq,Dv] in the output layout
  OutputSpec lse;  // f32 [B,Hq,Sq], packed [Hq,Tq]
};
// From shapes alone; the same answer that plan and run use. Error as validate(problem). Pure;
// thread-safe.
FOVEA_API Result<OutputSpecs> output_spec(const Problem& problem);

// Options of one call. An argument here beats the configuration.
struct CallOptions {
  Layout input_layout = Layout::bshd;
  std::optional<Layout> output_layout;  // default: the input layout
  std::optional<double> scale;
  std::optional<bool> is_causal;
  Window window;
  bool return_lse = false;
  std::optional<DType> out_dtype;  // default: q's dtype; f32 on request
  int64_t max_seqlen_q = 0;  // packed on a device: longest document; 0 on the CPU reads cu_seqlens
  int64_t max_seqlen_kv = 0;
  // For layers whose backend is sparse: where the request stands and which mask applies. Layers
  // with a dense backend do not read it.
  const SparseAttentionState* sparse_state = nullptr;
  // What the model states about mask and lengths; read during the call. nullptr: nothing.
  const AttentionMetadata* metadata = nullptr;
  // The keys of a call, in place of tensors.block_counts and block_indices. On a device the lists
  // are copied there when a mask is new to the layer, which keeps the last eight; a mask of equal
  // contents is not new.
  std::shared_ptr<const BlockMask> block_mask;
  int32_t block_q = 128;  // tokens in a block of tensors.block_counts: 64 or 128
  int32_t block_kv = 128;
  // Where the denoising run stands, in [0, 1]: 1 is pure noise, 0 none. The gate of skip_softmax
  // (disabled_until_timestep) reads it and nothing else does; a gated layer that is not told runs
  // dense. Plans hold for their side of the gate.
  std::optional<double> timestep;
  Stream stream;
};

// Checks the tensors of a call against the contract and describes them as a Problem. Every argument
// error names the tensor and the field. Reads tensor metadata only, except cu_seqlens on the CPU
// when packed (for the document count and the longest document). The problem is that of the tensors
// as they are: options.metadata is for normalise(). Pure; thread-safe.
FOVEA_API Result<Problem> describe(const AttentionTensors& tensors, const CallOptions& options);

// Value checks that the CPU makes before anything is written: kv_lengths in 0..Skv, cu_seqlens
// start/order/end, integer masks hold only 0 and 1, block lists ascend within the keys. Tensors
// must live on the CPU. Errors: invalid_value naming tensor and index.
FOVEA_API Status check_values(const AttentionTensors& tensors, const Problem& problem) noexcept;

// On a device the outputs come from a pool and go back to it in the order of the call's stream,
// which must live as long as they do.
struct AttentionResult {
  OwnedTensor out;
  OwnedTensor lse;  // absent unless asked for
  std::shared_ptr<const Receipt> receipt;
};

// How a layer is declared.
struct LayerOptions {
  std::string role = "self";
  std::string category;
  int64_t heads_q = 0;  // 0: any; else checked on every call
  int64_t heads_kv = 0;
  int64_t head_dim = 0;
  int64_t dim_v = 0;
  bool mask_free = false;  // the model never passes a mask to this layer
  // For skip_softmax with a target_sparsity: the checkpoint's calibration, and the layer's name in
  // it, such as "transformer.blocks.5.attn1".
  std::shared_ptr<const SkipSoftmaxCalibration> calibration = {};
  std::string name = {};
  // Handed to the plan with every call; shared with the recordings that the layer makes. A backend
  // that reads none refuses them.
  std::shared_ptr<const PreparedTensors> prepared = {};
};

// The plan of one call, with what its sparse state made of it.
struct CallPlan {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Receipt> receipt;  // what its runs hand out
  Problem problem;                         // the call's tensors and options in normal form
  bool without_lists = false;  // dense here: run without tensors.block_counts, _indices, _partial
};

// Thread-safe: calls may overlap. Holds its own copy of the configuration.
//
// A call runs on the device of its tensors, for CUDA on options.stream, without waiting for it.
class Attention {
 public:
  // `executor` runs CPU kernels and must outlive the layer; null takes OpenMP threads. `facts`
  // stand for every device that the layer is used on; without them resolve() answers for this
  // machine's CPU, and calls and plans use the probed facts of their tensors' device. Errors:
  // invalid_config, invalid_facts.
  FOVEA_API static Result<Attention> create(LayerOptions layer, AttentionConfig config,
                                            Executor* executor = nullptr,
                                            std::optional<DeviceFacts> facts = {});
  FOVEA_API Attention(Attention&&) noexcept;
  FOVEA_API Attention& operator=(Attention&&) noexcept;
  FOVEA_API ~Attention();

  // Allocates the outputs and the workspace, then plans (cached) and runs. On a device both come
  // from a stream-ordered pool. Errors of a device: device_error, out_of_memory, invalid_tensor for
  // memory that is not where the tensor says.
  FOVEA_API Result<AttentionResult> operator()(const AttentionTensors& inputs,
                                               const CallOptions& options = {}) const;
  // Writes into tensors.out and tensors.lse.
  FOVEA_API Result<std::shared_ptr<const Receipt>> run(const AttentionTensors& tensors,
                                                       const CallOptions& options = {}) const;
  // The decision for a problem, without running it.
  FOVEA_API std::shared_ptr<const Decision> resolve(const Problem& problem) const;
  // The report of the execution contract for a call with this metadata, in surroundings that the
  // host engine declares: parallel strategy, paged storage and its element type, outer boundaries,
  // full graph, timestep. `device`: where the call would run, by default as for plan(); a device
  // that cannot be probed is unsupported, with the cause. Everything else in `context` is
  // overwritten by what the layer, its backend and the normal form say. Contradicting metadata is
  // unsupported, by field. Reads no tensor and never waits for a device; call it outside captured
  // or compiled regions, and again when the metadata changes. Advisory: changes neither selection
  // nor execution.
  FOVEA_API ExecutionPathResult resolve_execution_path(const Problem& problem,
                                                       const ExecutionContext& context,
                                                       const AttentionMetadata& metadata = {},
                                                       std::optional<Device> device = {}) const;
  // The same for a call as run() takes it, on the device of its tensors, with its block mask and
  // its sparse state. Errors: those of describe.
  FOVEA_API Result<ExecutionPathResult> resolve_execution_path(
      const AttentionTensors& tensors, const CallOptions& options,
      const ExecutionContext& context) const;
  // A plan for callers that keep their own workspace, for normalise(problem, metadata).problem and
  // tensors on `device`: by default the CPU, or cuda:0 for a layer made with CUDA facts. It runs on
  // the tensors that apply() makes. Errors: those of normalise, the refusal, those of probe_cuda.
  FOVEA_API Result<std::shared_ptr<const Plan>> plan(const Problem& problem,
                                                     std::optional<Device> device = {},
                                                     const AttentionMetadata& metadata = {}) const;
  // A plan for a call as run() takes it, on the device of its tensors, that callers with their own
  // workspace keep while shapes, options and the state's decision stay. It runs on what
  // normalise() and apply() make of a call of the same problem. Lists come as tensors:
  // options.block_mask is an error. Errors: as run, except those of tensor values.
  FOVEA_API Result<CallPlan> plan(const AttentionTensors& tensors,
                                  const CallOptions& options) const;
  // Plans once, for the device that plan() takes by default, and keeps everything that a run needs,
  // the layer's prepared tensors included. No timestep is known, so a gated skip_softmax is dense.
  // Errors as plan, out_of_memory.
  FOVEA_API Result<RecordedCall> record(const Problem& problem,
                                        const AttentionMetadata& metadata = {}) const;

 private:
  struct State;
  explicit Attention(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One call without a layer object: role "self". Decisions are cached per configuration in the
// calling thread.
FOVEA_API Result<AttentionResult> attention(const TensorView& q, const TensorView& k,
                                            const TensorView& v, const AttentionConfig& config = {},
                                            const CallOptions& options = {},
                                            const TensorView& mask = {},
                                            const TensorView& kv_lengths = {});

}  // namespace fovea
