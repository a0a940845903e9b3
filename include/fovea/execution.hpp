// The execution contract: in which context a path is asked for, and what can be said of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/device.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/dtype.hpp"
#include "fovea/error.hpp"
#include "fovea/executor.hpp"
#include "fovea/video_layout.hpp"

namespace fovea {

// supported: verified (on an accelerator: a committed validation record exists). unmigrated: runs,
// never claimed verified. unsupported: refused, always with a reason.
enum class SupportStatus : uint8_t { supported, unsupported, unmigrated };
// Advisory towards compilers: traceable, opaque to the compiler as a custom op, or outside compiled
// regions only.
enum class CompilationMode : uint8_t { traceable, custom_op, eager_only };
enum class PackingMode : uint8_t { none, packed_padding, multi_document };
enum class MaskMode : uint8_t { none, padding, arbitrary, unknown };
enum class ParallelStrategy : uint8_t { none, ulysses, ring, hybrid_ulysses_ring, allgather_kv };
enum class OuterBoundary : uint8_t { hsdp, attention_schedule };

FOVEA_API std::string_view name(SupportStatus status) noexcept;
FOVEA_API std::string_view name(CompilationMode mode) noexcept;
FOVEA_API std::string_view name(PackingMode mode) noexcept;
FOVEA_API std::string_view name(MaskMode mode) noexcept;
FOVEA_API std::string_view name(ParallelStrategy strategy) noexcept;
FOVEA_API std::string_view name(OuterBoundary boundary) noexcept;

class BlockMask;

// Where and how a call will run. Facts may describe another machine; then plans cannot be made,
// only reports. A layer fills in what it knows itself (Attention::resolve_execution_path); what a
// caller claims there is not used.
struct ExecutionContext {
  DeviceFacts facts = DeviceFacts();
  // Runs CPU kernels; not owned, must outlive the plans made with it. nullptr: serial_executor().
  Executor* executor = nullptr;
  bool local = true;     // facts describe this machine
  Device device = kCpu;  // which of its devices, when local; plans run on tensors there
  // Before a layer exists (resolve_capabilities); later they come from the problem.
  std::optional<DType> dtype;
  std::optional<bool> causal;
  // A caller's idea of the kernel. Never used: kernel identity comes from what is registered.
  std::string kernel_variant;
  MaskMode mask_mode = MaskMode::none;
  PackingMode packing_mode = PackingMode::none;
  ParallelStrategy parallel_strategy = ParallelStrategy::none;
  std::vector<OuterBoundary> outer_boundaries;
  bool piecewise = false;
  bool paged_kv = false;
  std::string kv_cache_dtype;
  bool require_fullgraph = false;
  bool sparse_state = false;  // a sparse run-time state accompanies the call
  // Signature of the prepared tensors that accompany the call; empty: none.
  std::string prepared;
  // The document boundaries of the problem were made from lengths and lie in host memory.
  bool host_documents = false;
  // The kv_lengths of the problem were made from a number and lie in host memory.
  bool host_lengths = false;
  bool npu_attn_varlen = false;  // AttentionMetadata::npu_attn_varlen
  // Ascend laser attention: AttentionMetadata::laser_input_scale.
  std::optional<double> laser_input_scale;
  // Where the run stands, for the gate of skip_softmax: CallOptions::timestep.
  std::optional<double> timestep;
  // First keys whose blocks every sparse selection keeps: AttentionMetadata::protected_kv_prefix.
  int64_t protected_kv_prefix = 0;
  std::optional<VideoLayout> video_layout;  // AttentionMetadata::video_layout
  // This step or layer of a sparse schedule is dense: what runs instead of the sparse backend.
  std::optional<BackendName> scheduled_dense;
  // The mask of Problem::sparse where it is built already; else plan builds it. With lists that a
  // call would bring, the plan takes this mask's instead and the call brings none.
  std::shared_ptr<const BlockMask> block_mask;
};

// What a backend says of one problem in one context. `reasons` is never empty when unsupported, and
// says what would change the answer; when unmigrated it may say what has not been validated.
struct ExecutionPathResult {
  BackendName backend;
  PlatformId platform = PlatformId::cpu;
  std::string kernel_variant;  // "fovea", or the package's kernel: "fa4", "mindiesd", "aiter"
  ParallelStrategy parallel_strategy = ParallelStrategy::none;
  std::string provider;  // "fovea", "cudnn" or "package NAME VERSION"
  std::string path;      // e.g. "cpu.avx2", "cuda.flash_sm90"
  std::string instance;  // the row of the instance table, e.g. "f32.d128"
  SupportStatus support = SupportStatus::unsupported;
  CompilationMode compilation_mode = CompilationMode::eager_only;
  bool built = false;  // this binary holds the kernel
  bool lossy = false;
  std::optional<double> density;  // share of key blocks kept, when known before the call
  size_t workspace_bytes = 0;
  std::vector<Reason> reasons;
};

// A full-graph request against a report. Never changes the report.
struct CapabilityResult {
  SupportStatus status = SupportStatus::unsupported;
  std::vector<Reason> reasons;
};

// Truth table of the contract: unmigrated + fullgraph -> unsupported; supported + eager_only +
// fullgraph -> unsupported; otherwise the report's own status and reasons. Pure; thread-safe.
FOVEA_API CapabilityResult requested_support(const ExecutionPathResult& report,
                                             bool require_fullgraph);

}  // namespace fovea
