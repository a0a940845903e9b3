#include "src/backends/flash_sm90/plan.hpp"

#include <cstddef>
#include <string>
#include <utility>

#include "src/backends/block_topk_sm90/selection.hpp"
#include "src/backends/flash_sm90/launch.hpp"
#include "src/backends/run_tensors.hpp"
#include "src/core/text.hpp"
#include "src/cuda_device/device_guard.hpp"
#include "src/cuda_device/graph_retention.hpp"
#include "src/cuda_device/memory.hpp"

namespace fovea::backends {

std::optional<Reason> needs_hopper(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  if (facts.integer("sm") == 90) {
    const std::optional<Version> cuda = facts.version("cuda");
    if (cuda && *cuda < Version{12, 0, 0})
      return Reason{ReasonCode::version, "cuda", std::string(*facts.get("cuda")), ">= 12.0",
                    "update the driver, or choose FLASH_ATTN_2"};
    // Of a binary whose architectures are stated, these kernels must be among them.
    const std::string_view kernels = facts.get("kernels").value_or("unknown");
    if (kernels == "unknown") return std::nullopt;
    for (const std::string_view architecture : text::split(kernels, '+'))
      if (architecture == "sm_90a") return std::nullopt;
    return Reason{ReasonCode::architecture, "binary", text::concat("built for ", kernels), "sm_90a",
                  "rebuild with ./dev build --cuda sm90"};
  }
  return Reason{ReasonCode::architecture, "sm", std::string(facts.get("sm").value_or("unknown")),
                "90", "choose FLASH_ATTN, which takes the best kernel of the device"};
}

flash_sm90::Problem flash_sm90_problem(const Problem& p, const ListShape* lists) {
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
  if (lists != nullptr) {
    k.list = true;
    k.list_block_q = lists->block_q;
    k.list_block_kv = lists->block_kv;
  }
  k.out_float = p.out_dtype == kF32;
  return k;
}

#if FOVEA_CUDA_SM90
namespace {

Error launch_error(const flash_sm90::LaunchStatus& status, const std::string& path) {
  const ErrorCode code = status.stage == 1 ? ErrorCode::internal : ErrorCode::device_error;
  return {
      code,
      path + ": " + flash_sm90::describe(status) + " (code " + std::to_string(status.code) + ")",
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

// A call brings no lists where the plan has a mask.
Problem as_called(Problem problem, const ListRequest* lists) {
  if (lists != nullptr && lists->mask != nullptr) problem.sparse.reset();
  return problem;
}

class FlashSm90Plan final : public Plan {
 public:
  FlashSm90Plan(Problem problem, const flash_sm90::Choice& choice, Device device, Receipt receipt,
                const ListRequest* lists)
      : problem_(as_called(std::move(problem), lists)),
        device_(device),
        tensors_(problem_, device, 16),
        kernel_problem_(flash_sm90_problem(problem_, lists != nullptr ? &lists->shape : nullptr)),
        choice_(choice),
        receipt_(std::move(receipt)) {
    if (lists == nullptr) return;
    if (lists->topk) selection_ = make_selection(problem_, *lists->topk);
    list_shape_ = lists->shape;
    mask_ = lists->mask;
  }

  // Loads the kernels and the lists that are known on the plan's device.
  Status prepare() {
    cuda::drop_released_states();
    const flash_sm90::LaunchStatus status = flash_sm90::prepare(choice_, device_.index, devices_);
    if (status.stage != 0) return launch_error(status, receipt_.path);
    if (selection_) {
      const cuda::DeviceGuard guard(device_.index);
      const int error = guard.error() != 0 ? guard.error() : block_topk_sm90::prepare();
      if (error != 0) return launch_error({4, error}, receipt_.path);
    }
    if (mask_ == nullptr) return {};
    const std::span<const int32_t> counts = mask_->counts(), indices = mask_->indices();
    counts_ = counts.size();
    FOVEA_TRY(lists_, cuda::allocate_lasting(counts.size_bytes() + indices.size_bytes(), device_));
    int32_t* memory = static_cast<int32_t*>(lists_.get());
    FOVEA_CHECK(cuda::copy_to_device(memory, counts.data(), counts.size_bytes(), {}));
    return cuda::copy_to_device(memory + counts.size(), indices.data(), indices.size_bytes(), {});
  }

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& t, Workspace workspace,
             Stream stream) const noexcept override {
    FOVEA_CHECK(tensors_.check(t));
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
    if (list_shape_) {
      FOVEA_CHECK(set_lists(t, workspace, stream, a));
    }
    a.workspace = workspace.data;
    const flash_sm90::LaunchStatus status =
        flash_sm90::launch(kernel_problem_, choice_, a, device_.index, devices_,
                           static_cast<CUstream_st*>(stream.handle));
    if (status.stage != 0) return launch_error(status, receipt_.path);
    return {};
  }

 private:
  // The call's own lists, those chosen from its tensors, or the plan's, which a graph that captures
  // the call keeps alive.
  Status set_lists(const AttentionTensors& t, Workspace workspace, Stream stream,
                   flash_sm90::Arguments& a) const {
    if (selection_) {
      auto* memory = static_cast<std::byte*>(workspace.data) + choice_.workspace_bytes;
      block_topk_sm90::Call call = *selection_;
      call.q.data = t.q.data;
      call.k.data = t.k.data;
      call.kv_lengths = a.kv_lengths;
      call.kv_lengths_wide = a.kv_lengths_int64;
      const cuda::DeviceGuard guard(device_.index);
      const int error =
          guard.error() != 0
              ? guard.error()
              : block_topk_sm90::select(call, memory, static_cast<CUstream_st*>(stream.handle));
      if (error != 0) return launch_error({4, error}, receipt_.path);
      const block_topk_sm90::WorkspaceLayout layout = block_topk_sm90::workspace_layout(call);
      a.list_counts = reinterpret_cast<const int*>(memory + layout.counts);
      a.list_indices = reinterpret_cast<const int*>(memory + layout.indices);
    } else if (lists_ != nullptr) {
      FOVEA_CHECK(cuda::keep_while_captured(lists_, stream));
      a.list_counts = static_cast<const int*>(lists_.get());
      a.list_indices = a.list_counts + counts_;
    } else {
      a.list_counts = static_cast<const int*>(t.block_counts.data);
      a.list_indices = static_cast<const int*>(t.block_indices.data);
    }
    const int64_t rows = (problem_.seq_q + list_shape_->block_q - 1) / list_shape_->block_q;
    const int64_t most = mask_ != nullptr ? mask_->max_count() : list_shape_->most;
    const int64_t head_rows = list_shape_->heads > 1 ? rows : 0;
    const int64_t batch_rows = list_shape_->batch > 1 ? rows * list_shape_->heads : 0;
    a.list_count_head = head_rows;
    a.list_count_batch = batch_rows;
    a.list_index_tile = most;
    a.list_index_head = head_rows * most;
    a.list_index_batch = batch_rows * most;
    return {};
  }

  Problem problem_;
  Device device_;
  PlannedTensors tensors_;
  flash_sm90::Problem kernel_problem_;
  flash_sm90::Choice choice_;
  Receipt receipt_;
  mutable flash_sm90::DeviceCache devices_;
  std::optional<ListShape> list_shape_;
  std::shared_ptr<const BlockMask> mask_;
  std::shared_ptr<void> lists_;  // counts, then indices, on the device
  size_t counts_ = 0;            // numbers before the indices
  std::optional<block_topk_sm90::Call> selection_;
};

}  // namespace
#endif

Result<std::unique_ptr<Plan>> make_flash_sm90_plan(const Problem& problem,
                                                   const flash_sm90::Choice& choice, Device device,
                                                   Receipt receipt, const ListRequest* lists) {
#if FOVEA_CUDA_SM90
  receipt.device = to_string(device);
  receipt.isa = "sm_90a";
  receipt.compute_qk = receipt.compute_pv = std::string(fovea::name(problem.dtype));
  receipt.padding_head_dim = choice.key.head_dim - problem.head_dim;
  const int64_t block_kv = choice.key.block_kv;
  if (problem.layout != Layout::packed)
    receipt.padding_seq_kv = (block_kv - problem.seq_kv % block_kv) % block_kv;
  auto plan = std::make_unique<FlashSm90Plan>(problem, choice, device, std::move(receipt), lists);
  if (device.type == DeviceType::cuda) FOVEA_CHECK(plan->prepare());
  return std::unique_ptr<Plan>(std::move(plan));
#else
  (void)problem, (void)choice, (void)device, (void)lists;
  return Error{ErrorCode::not_built, receipt.path + " is not in this binary", {}};
#endif
}

}  // namespace fovea::backends
