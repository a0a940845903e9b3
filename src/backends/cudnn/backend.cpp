#include "src/backends/cudnn/backend.hpp"

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/backends/cudnn/graph.hpp"
#include "src/backends/cudnn/padding.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/run_tensors.hpp"
#include "src/core/text.hpp"
#include "src/cuda_device/device_guard.hpp"
#include "src/cuda_device/runtime_error.hpp"

namespace fovea::backends {
namespace {

using text::concat;

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxPaddedBatch = 65535;  // of a launch's second axis

// Versions of cuDNN whose attention is known to be wrong.
struct KnownFault {
  Version first, last;
  std::string_view what;
};
constexpr KnownFault kKnownFaults[] = {
    {{9, 10, 0}, {9, 10, 1}, "16-bit attention of 9.10.0 and 9.10.1 is faulty"},
};

std::optional<Reason> lacks(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  if (facts.integer("sm").value_or(0) < 80)
    return Reason{ReasonCode::architecture, "sm", std::string(facts.get("sm").value_or("unknown")),
                  "80 or newer", "choose FLASH_ATTN or TORCH_SDPA"};
  if (!facts.flag("cudnn"))
    return Reason{ReasonCode::package, "cudnn",
                  facts.fault("cudnn") ? std::string(*facts.get("cudnn")) : "not installed",
                  "9.0 or newer",
                  "pip install nvidia-cudnn-cu13, or apt-get install cudnn9-cuda-13"};
  const std::optional<Version> version = facts.version("cudnn");
  if (!version) return std::nullopt;
  if (*version < Version{9, 0, 0})
    return Reason{ReasonCode::version, "cudnn", std::string(*facts.get("cudnn")), "9.0 or newer",
                  "pip install nvidia-cudnn-cu13, or apt-get install cudnn9-cuda-13"};
  for (const KnownFault& fault : kKnownFaults)
    if (*version >= fault.first && *version <= fault.last)
      return Reason{ReasonCode::known_fault, "cudnn", std::string(*facts.get("cudnn")),
                    "a version without the fault", concat(fault.what, "; install another one")};
  return std::nullopt;
}

constexpr Instance sdpa() {
  Instance in;
  in.name = "sdpa";
  in.path = "cuda.cudnn";
  in.dtypes = {Element::f16, Element::bf16};
  in.head_dim = {8, 256, 8};
  in.dim_v = {8, 256, 8};
  in.masks = {MaskKind::none};
  in.mask_dtypes = {};
  in.window = false;
  in.kv_lengths = false;
  in.packed = false;
  in.f32_out = false;
  in.expanded_strides = false;
  in.alignment = 16;
  in.stride_multiple = 8;
  in.device = lacks;
  in.built = FOVEA_HAVE_CUDNN != 0;
  return in;
}

// Key lengths: on copies of k and v, see padding.hpp.
constexpr Instance padded() {
  Instance in = sdpa();
  in.name = "sdpa.padded";
  in.kv_lengths = true;
  in.causal = false;
  return in;
}

constexpr Instance kInstances[] = {sdpa(), padded()};
constexpr const Instance* kPadded = &kInstances[1];

bool older(const DeviceFacts& facts, Version than) {
  const std::optional<Version> version = facts.version("cudnn");
  return version && *version < than;
}

Reason too_old(const DeviceFacts& facts, std::string_view what, std::string_view needed) {
  return {ReasonCode::version, concat("cudnn for ", what), std::string(*facts.get("cudnn")),
          concat(needed, " or newer"), "install a newer cuDNN"};
}

// What the instance table cannot say of a problem that has found its row.
std::vector<Reason> refusals_beyond_table(const Problem& p, const DeviceFacts& facts) {
  std::vector<Reason> out;
  if (p.seq_kv == 0)
    out.push_back({ReasonCode::seq_limit, "seq_kv", "0", "1 or more", "choose FLASH_ATTN"});
  if (p.seq_q > kMaxSize || p.seq_kv > kMaxSize)
    out.push_back({ReasonCode::seq_limit,
                   "seq_q, seq_kv",
                   concat(p.seq_q, ", ", p.seq_kv),
                   concat("at most ", kMaxSize),
                   {}});
  // Rows that see no key are outside of what cuDNN defines.
  if (p.causal && p.seq_q > p.seq_kv)
    out.push_back({ReasonCode::seq_limit, "seq_q with causal", std::to_string(p.seq_q),
                   concat("seq_kv, ", p.seq_kv), "choose FLASH_ATTN"});
  if (p.causal && (p.seq_q % 64 != 0 || p.seq_kv % 64 != 0) && older(facts, {9, 6, 0}))
    out.push_back(too_old(facts, "causal lengths that are no multiples of 64", "9.6"));
  if (p.causal && p.seq_q == 1 && older(facts, {9, 10, 0}))
    out.push_back(too_old(facts, "causal with one query", "9.10.2"));
  const bool large = p.head_dim > 128 || p.dim_v > 128;
  const int64_t generation = facts.integer("sm").value_or(0) / 10;
  if (large && generation == 8 && older(facts, {9, 10, 0}))
    out.push_back(too_old(facts, "heads above 128 on sm_8x", "9.10.2"));
  if (large && generation == 10 && older(facts, {9, 9, 0}))
    out.push_back(too_old(facts, "heads above 128 on sm_10x", "9.9"));
  return out;
}

#if FOVEA_HAVE_CUDNN
class CudnnPlan final : public Plan {
 public:
  // `graph` is null for a problem without rows.
  CudnnPlan(Problem problem, Device device, std::shared_ptr<const cudnn::Graph> graph,
            Receipt receipt)
      : problem_(std::move(problem)),
        device_(device),
        tensors_(problem_, device, 16),
        graph_(std::move(graph)),
        receipt_(std::move(receipt)) {}

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& t, Workspace workspace,
             Stream stream) const noexcept override {
    FOVEA_CHECK(tensors_.check(t));
    FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
    if (graph_ == nullptr) return {};
    cudnn::Pointers p;
    p.q = t.q.data;
    p.k = t.k.data;
    p.v = t.v.data;
    p.out = t.out.data;
    p.lse = problem_.lse ? static_cast<float*>(t.lse.data) : nullptr;
    p.workspace = workspace.data;
    return problem_.has_kv_lengths ? run_padded(p, t, stream) : graph_->run(p, stream);
  }

 private:
  Status run_padded(cudnn::Pointers p, const AttentionTensors& t, Stream stream) const noexcept {
    const cuda::DeviceGuard guard(device_.index);
    FOVEA_CHECK(cuda::check(guard.error(), "choosing a device"));
    const cudnn::PaddingLayout layout = cudnn::padding_layout(problem_);
    char* const memory = static_cast<char*>(p.workspace) + cudnn::kWorkspaceBytes;
    const cudnn::PaddingCall call{
        p.k, p.v, t.kv_lengths.data, t.kv_lengths.dtype == kI64, memory, p.out, p.lse};
    const auto handle = static_cast<CUstream_st*>(stream.handle);
    FOVEA_CHECK(cuda::check(cudnn::launch_padding(problem_, call, handle), "copying k and v"));
    p.k = memory + layout.k;
    p.v = memory + layout.v;
    p.q_lengths = reinterpret_cast<const int32_t*>(memory + layout.q_lengths);
    p.kv_lengths = reinterpret_cast<const int32_t*>(memory + layout.kv_lengths);
    FOVEA_CHECK(graph_->run(p, stream));
    return cuda::check(cudnn::launch_empty_items(problem_, call, handle), "clearing empty items");
  }

  Problem problem_;
  Device device_;
  PlannedTensors tensors_;
  std::shared_ptr<const cudnn::Graph> graph_;
  Receipt receipt_;
};

// The graphs that exist, by device and problem. Building one takes longer than most calls.
class GraphCache {
 public:
  Result<std::shared_ptr<const cudnn::Graph>> get(const Problem& problem, Device device) {
    const Key key{device.index, graph_part(problem)};
    const std::lock_guard lock(mutex_);
    if (const auto found = graphs_.find(key); found != graphs_.end()) return found->second;
    FOVEA_TRY(std::shared_ptr<const cudnn::Graph> made, cudnn::build_graph(problem, device));
    if (graphs_.size() >= kMost) graphs_.clear();
    graphs_.emplace(key, made);
    return made;
  }

 private:
  static constexpr size_t kMost = 256;

  struct Key {
    int device;
    Problem problem;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept {
      return hash_value(key.problem) ^ static_cast<size_t>(key.device);
    }
  };

  // Without what no graph depends on.
  static Problem graph_part(Problem p) {
    p.seed = 0;
    p.alignment = 16;
    return p;
  }

  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const cudnn::Graph>, Hash> graphs_;
};
#endif

class CudnnBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:cudnn"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return decide(name, problem, spec, context).first;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const auto [report, row] = decide(name, problem, spec, context);
    FOVEA_CHECK(admit(report, problem, context));
#if FOVEA_HAVE_CUDNN
    Receipt receipt = make_receipt(report, *row);
    receipt.device = to_string(context.device);
    receipt.isa = concat("sm_", context.facts.get("sm").value_or("unknown"));
    receipt.compute_qk = receipt.compute_pv = std::string(fovea::name(problem.dtype));
    std::shared_ptr<const cudnn::Graph> graph;
    if (problem.batch > 0 && problem.seq_q > 0) {
      const Problem padded = problem.has_kv_lengths ? cudnn::padded_problem(problem) : problem;
      FOVEA_TRY(graph, graphs_.get(padded, context.device));
    }
    if (problem.has_kv_lengths) receipt.copies = {"k", "v"};
    return std::unique_ptr<Plan>(
        std::make_unique<CudnnPlan>(problem, context.device, std::move(graph), std::move(receipt)));
#else
    return Error{ErrorCode::not_built,
                 concat(fovea::name(name), ": ", report.path, " is not in this binary"),
                 {}};
#endif
  }

 private:
  static std::pair<ExecutionPathResult, const Instance*> decide(BackendName name,
                                                                const Problem& problem,
                                                                const AttentionSpec* spec,
                                                                const ExecutionContext& context) {
    const Choice choice = choose(kInstances, problem, context);
    ExecutionPathResult r = report(name, "cudnn", choice, problem, context);
    apply_spec(r, spec);
    if (choice.instance == nullptr) return {r, nullptr};
    std::vector<Reason> more = refusals_beyond_table(problem, context.facts);
    const bool padded = choice.instance == kPadded;
    // Its padding multiplies hidden values by 0, so a NaN behind a length would reach the output.
    if (padded && problem.batch > kMaxPaddedBatch)
      more.push_back({ReasonCode::kv_lengths, "batch with kv_lengths",
                      std::to_string(problem.batch), concat("at most ", kMaxPaddedBatch),
                      "choose FLASH_ATTN"});
    if (padded && (spec == nullptr || !spec->allow_copy))
      more.push_back({ReasonCode::kv_lengths, "kv_lengths", "given without allow_copy",
                      "none, or allow_copy: k and v are copied with hidden rows cleared",
                      "set allow_copy, or choose FLASH_ATTN"});
    if (more.empty()) {
      r.workspace_bytes =
          cudnn::kWorkspaceBytes + (padded ? cudnn::padding_layout(problem).bytes : 0);
    } else {
      r.support = SupportStatus::unsupported;
      r.reasons.insert(r.reasons.end(), more.begin(), more.end());
    }
    return {r, choice.instance};
  }

#if FOVEA_HAVE_CUDNN
  mutable GraphCache graphs_;
#endif
};

}  // namespace

std::shared_ptr<const Backend> make_cudnn_backend() {
  return std::make_shared<const CudnnBackend>();
}

}  // namespace fovea::backends
