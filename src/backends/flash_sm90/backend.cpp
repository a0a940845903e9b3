#include "src/backends/flash_sm90/backend.hpp"

#include <memory>
#include <string>
#include <utility>

#include "src/backends/flash_sm90/config.hpp"
#include "src/backends/flash_sm90/launch.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/run_tensors.hpp"

namespace fovea::backends {
namespace {

std::optional<Reason> needs_hopper(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  if (facts.integer("sm") == 90) return std::nullopt;
  return Reason{ReasonCode::architecture, "sm", std::string(facts.get("sm").value_or("unknown")),
                "90", "choose FLASH_ATTN, which takes the best kernel of the device"};
}

// Without a committed validation record a path runs but is never claimed verified.
bool unverified(const DeviceFacts&) { return false; }

// One row for each head-dimension bucket; sizes inside a bucket are filled up by the tensor copies.
constexpr Instance row(std::string_view name, int64_t min, int64_t max) {
  Instance in;
  in.name = name;
  in.path = "cuda.flash_sm90";
  in.dtypes = {Element::f16, Element::bf16};
  in.head_dim = {min, max, 8};
  in.dim_v = {8, max, 8};
  in.masks = {MaskKind::none, MaskKind::keys, MaskKind::boolean};
  in.mask_dtypes = {Element::boolean, Element::u8};
  in.alignment = 16;
  in.stride_multiple = 8;
  in.device = needs_hopper;
  in.verified = unverified;
  in.built = FOVEA_CUDA_SM90 != 0;
  return in;
}

constexpr Instance kInstances[] = {row("d64", 8, 64), row("d96", 8, 96), row("d128", 8, 128),
                                   row("d256", 8, 256)};

flash_sm90::Problem kernel_problem(const Problem& p) {
  flash_sm90::Problem k;
  k.precision = p.dtype == kF16 ? flash_sm90::Precision::f16 : flash_sm90::Precision::bf16;
  k.packed = p.layout == Layout::packed;
  k.batch = k.packed ? p.documents : p.batch;
  k.heads_q = p.heads_q;
  k.heads_kv = p.heads_kv;
  k.seq_q = p.seq_q;
  k.seq_kv = p.seq_kv;
  k.head_dim = p.head_dim;
  k.dim_v = p.dim_v;
  k.lengths = p.has_kv_lengths;
  k.key_bits = p.mask.kind != MaskKind::none;
  k.key_mask_batches = p.mask.per_batch ? p.batch : 1;
  k.key_mask_heads = p.mask.per_head ? p.heads_q : 1;
  k.window_left = p.window.left;
  k.window_right = p.causal ? 0 : p.window.right;
  k.band = k.window_left >= 0 || k.window_right >= 0;
  k.out_float = p.out_dtype == kF32;
  return k;
}

// What the instance table cannot say of a problem that has found its row.
std::optional<Reason> refusal(const Problem& p, const flash_sm90::Choice& choice) {
  if (p.mask.kind == MaskKind::boolean && p.mask.per_query)
    return Reason{
        ReasonCode::mask, "mask", "bool with a query axis", "none, keys, bool [B,H,1,Skv]",
        "choose FLASH_ATTN, which takes a kernel with arbitrary masks where one is built"};
  if (choice.refusal == flash_sm90::Refusal::none) return std::nullopt;
  return Reason{ReasonCode::seq_limit,
                "seq_q x seq_kv x heads",
                std::to_string(p.seq_q) + " x " + std::to_string(p.seq_kv) + " x " +
                    std::to_string(p.heads_q),
                "at most 2^30 rows and work items",
                {}};
}

#if FOVEA_CUDA_SM90
Error launch_error(const flash_sm90::LaunchStatus& status) {
  const ErrorCode code = status.stage == 1 ? ErrorCode::internal : ErrorCode::device_error;
  return {code,
          std::string("cuda.flash_sm90: ") + flash_sm90::describe(status) + " (code " +
              std::to_string(status.code) + ")",
          {}};
}

// Element strides of a tensor or an output in a layout.
flash_sm90::Tensor strided(const TensorView& t, const Strides& s) {
  return {t.data, s.batch, s.seq, s.head};
}
flash_sm90::Tensor contiguous(const TensorView& t, const Problem& p) {
  const int64_t line = p.dim_v;
  if (p.out_layout == Layout::bhsd)
    return {t.data, p.heads_q * p.seq_q * line, line, p.seq_q * line};
  return {t.data, p.seq_q * p.heads_q * line, p.heads_q * line, line};
}

class FlashSm90Plan final : public Plan {
 public:
  FlashSm90Plan(Problem problem, const flash_sm90::Choice& choice, Device device, Receipt receipt)
      : problem_(std::move(problem)),
        device_(device),
        kernel_problem_(kernel_problem(problem_)),
        choice_(choice),
        receipt_(std::move(receipt)) {}

  // Loads the kernel on the plan's device.
  Status prepare() {
    const flash_sm90::LaunchStatus status = flash_sm90::prepare(choice_, device_.index, devices_);
    if (status.stage != 0) return launch_error(status);
    return {};
  }

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& t, Workspace workspace,
             Stream stream) const noexcept override {
    FOVEA_CHECK(check_tensors(problem_, t, device_, 16));
    FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
    flash_sm90::Arguments a;
    a.q = strided(t.q, problem_.q_strides);
    a.k = strided(t.k, problem_.k_strides);
    a.v = strided(t.v, problem_.v_strides);
    a.out = contiguous(t.out, problem_);
    a.lse = problem_.lse ? static_cast<float*>(t.lse.data) : nullptr;
    a.scale = static_cast<float>(problem_.effective_scale());
    if (problem_.has_kv_lengths) {
      a.kv_lengths = t.kv_lengths.data;
      a.kv_lengths_int64 = t.kv_lengths.dtype == kI64;
    }
    if (problem_.layout == Layout::packed) {
      a.cu_seqlens_q = static_cast<const int*>(t.cu_seqlens_q.data);
      a.cu_seqlens_kv = static_cast<const int*>(t.cu_seqlens_kv.data);
    }
    if (problem_.mask.kind != MaskKind::none) {
      // Axes from the right: key, query, head; the batch is the first one, also of a 2-D mask.
      const size_t rank = static_cast<size_t>(t.mask.rank);
      a.key_mask = static_cast<const uint8_t*>(t.mask.data);
      if (problem_.mask.per_batch) a.key_mask_batch = t.mask.stride[0];
      if (problem_.mask.per_head) a.key_mask_head = t.mask.stride[rank - 3];
    }
    a.workspace = workspace.data;
    const flash_sm90::LaunchStatus status =
        flash_sm90::launch(kernel_problem_, choice_, a, device_.index, devices_,
                           static_cast<CUstream_st*>(stream.handle));
    if (status.stage != 0) return launch_error(status);
    return {};
  }

 private:
  Problem problem_;
  Device device_;
  flash_sm90::Problem kernel_problem_;
  flash_sm90::Choice choice_;
  Receipt receipt_;
  mutable flash_sm90::DeviceCache devices_;
};
#endif

class FlashSm90Backend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:flash_sm90"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return decide(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const Decision decision = decide(name, problem, spec, context);
    FOVEA_CHECK(admit(decision.report, problem, context));
#if FOVEA_CUDA_SM90
    const flash_sm90::Key& key = decision.kernel.key;
    Receipt receipt = make_receipt(decision.report, *decision.row);
    receipt.device = to_string(context.device);
    receipt.isa = "sm_90a";
    receipt.compute_qk = receipt.compute_pv = std::string(fovea::name(problem.dtype));
    receipt.padding_head_dim = key.head_dim - problem.head_dim;
    if (problem.layout != Layout::packed)
      receipt.padding_seq_kv = (key.block_kv - problem.seq_kv % key.block_kv) % key.block_kv;
    auto plan = std::make_unique<FlashSm90Plan>(problem, decision.kernel, context.device,
                                                std::move(receipt));
    if (context.device.type == DeviceType::cuda) FOVEA_CHECK(plan->prepare());
    return std::unique_ptr<Plan>(std::move(plan));
#else
    return Error{ErrorCode::not_built,
                 fovea::name(name) + ": " + decision.report.path + " is not in this binary",
                 {}};
#endif
  }

 private:
  struct Decision {
    ExecutionPathResult report;
    const Instance* row = nullptr;
    flash_sm90::Choice kernel;
  };
  static Decision decide(BackendName name, const Problem& problem, const AttentionSpec* spec,
                         const ExecutionContext& context) {
    Decision d;
    const Choice choice = choose(kInstances, problem, context);
    d.row = choice.instance;
    d.report = fovea::backends::report(name, "fovea", choice, context);
    apply_spec(d.report, spec);
    if (d.row == nullptr) return d;
    d.kernel = flash_sm90::choose(kernel_problem(problem));
    if (std::optional<Reason> reason = refusal(problem, d.kernel)) {
      d.report.support = SupportStatus::unsupported;
      d.report.reasons.push_back(std::move(*reason));
    } else {
      d.report.workspace_bytes = d.kernel.workspace_bytes;
    }
    return d;
  }
};

}  // namespace

std::shared_ptr<const Backend> make_flash_sm90_backend() {
  return std::make_shared<const FlashSm90Backend>();
}

}  // namespace fovea::backends
