#include "src/backends/cuda_call.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "src/backends/run_tensors.hpp"

namespace fovea::backends {
namespace {

cuda::MaskType mask_type(const MaskTensor& mask) {
  if (mask.kind == MaskKind::none) return cuda::MaskType::none;
  if (mask.dtype == kF32) return cuda::MaskType::f32;
  if (mask.dtype == kF16) return cuda::MaskType::f16;
  if (mask.dtype == kBF16) return cuda::MaskType::bf16;
  return cuda::MaskType::byte;
}

int window(int64_t side) {
  return side < 0 ? cuda::kUnboundedWindow
                  : static_cast<int>(std::min<int64_t>(side, cuda::kUnboundedWindow));
}

cuda::StridedTensor strided(const Strides& s) { return {nullptr, s.batch, s.seq, s.head}; }

cuda::StridedTensor contiguous(const Problem& p) {
  if (p.out_layout == Layout::bhsd)
    return {nullptr, p.heads_q * p.seq_q * p.dim_v, p.dim_v, p.seq_q * p.dim_v};
  return {nullptr, p.seq_q * p.heads_q * p.dim_v, p.heads_q * p.dim_v, p.dim_v};
}

// Rows that one item has at most.
int64_t longest(const Problem& p) {
  const bool stated = p.layout == Layout::packed && p.max_document_q > 0;
  return stated ? std::min(p.max_document_q, p.seq_q) : p.seq_q;
}

class CallPlan final : public Plan {
 public:
  CallPlan(Problem problem, Device device, size_t alignment, Receipt receipt, CallLauncher launch)
      : problem_(std::move(problem)),
        device_(device),
        tensors_(problem_, device, alignment),
        call_(make_call(problem_)),
        receipt_(std::move(receipt)),
        launch_(std::move(launch)) {
    receipt_.device = to_string(device_);
  }

  size_t workspace_bytes() const noexcept override { return 0; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& t, Workspace, Stream stream) const noexcept override {
    FOVEA_CHECK(tensors_.check(t));
    cuda::AttentionCall call = call_;
    call.q.data = t.q.data;
    call.k.data = t.k.data;
    call.v.data = t.v.data;
    call.out.data = t.out.data;
    if (problem_.lse) call.lse = static_cast<float*>(t.lse.data);
    if (problem_.has_kv_lengths) {
      call.kv_lengths = t.kv_lengths.data;
      call.kv_lengths_wide = t.kv_lengths.dtype == kI64;
    }
    if (problem_.layout == Layout::packed) {
      call.cu_seqlens_q = static_cast<const int*>(t.cu_seqlens_q.data);
      call.cu_seqlens_kv = static_cast<const int*>(t.cu_seqlens_kv.data);
    }
    if (problem_.mask.kind != MaskKind::none) {
      // Axes from the right: key, query, head; the batch is the first one, also of a 2-D mask.
      const auto rank = static_cast<size_t>(t.mask.rank);
      call.mask = t.mask.data;
      if (problem_.mask.per_batch) call.mask_batch = t.mask.stride[0];
      if (problem_.mask.per_head) call.mask_head = t.mask.stride[rank - 3];
      if (problem_.mask.per_query) call.mask_row = t.mask.stride[rank - 2];
    }
    return launch_(call, device_.index, stream);
  }

 private:
  Problem problem_;
  Device device_;
  PlannedTensors tensors_;
  cuda::AttentionCall call_;
  Receipt receipt_;
  CallLauncher launch_;
};

}  // namespace

cuda::AttentionCall make_call(const Problem& p) {
  const bool packed = p.layout == Layout::packed;
  cuda::AttentionCall call;
  call.q = strided(p.q_strides);
  call.k = strided(p.k_strides);
  call.v = strided(p.v_strides);
  call.out = contiguous(p);
  call.batch = static_cast<int>(packed ? p.documents : p.batch);
  call.heads = static_cast<int>(p.heads_q);
  call.group = static_cast<int>(p.heads_q / p.heads_kv);
  call.seq_q = static_cast<int>(p.seq_q);
  call.seq_kv = static_cast<int>(p.seq_kv);
  call.max_seq_q = static_cast<int>(longest(p));
  call.head_dim = static_cast<int>(p.head_dim);
  call.dim_v = static_cast<int>(p.dim_v);
  call.scale = static_cast<float>(p.effective_scale());
  call.out_float = p.out_dtype == kF32;
  call.window_left = window(p.window.left);
  call.window_right = window(p.causal ? 0 : p.window.right);
  call.mask_type = mask_type(p.mask);
  return call;
}

std::optional<Reason> call_refusal(const Problem& p, int64_t block_q) {
  constexpr int64_t kRows = int64_t{1} << 30;
  constexpr int64_t kBlocks = (int64_t{1} << 31) - 1;
  const int64_t items = p.layout == Layout::packed ? p.documents : p.batch;
  const int64_t tiles = std::max<int64_t>((longest(p) + block_q - 1) / block_q, 1);
  // Divisions, so that no product overflows.
  const bool fits = p.seq_q < kRows && p.seq_kv < kRows && p.heads_q <= kBlocks &&
                    (items == 0 || p.heads_q <= kBlocks / items) &&
                    (items == 0 || p.heads_q * items <= kBlocks / tiles);
  if (fits) return std::nullopt;
  return Reason{ReasonCode::seq_limit,
                "seq_q x seq_kv x heads",
                std::to_string(p.seq_q) + " x " + std::to_string(p.seq_kv) + " x " +
                    std::to_string(p.heads_q),
                "less than 2^30 rows and 2^31 blocks of " + std::to_string(block_q) + " rows",
                {}};
}

std::unique_ptr<Plan> make_call_plan(Problem problem, Device device, size_t alignment,
                                     Receipt receipt, CallLauncher launch) {
  return std::make_unique<CallPlan>(std::move(problem), device, alignment, std::move(receipt),
                                    std::move(launch));
}

}  // namespace fovea::backends
