#include "src/backends/cpu_flash/backend.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "fovea/attention.hpp"
#include "src/backends/cpu_flash/cpu_flash.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"
#include "src/backends/cpu_flash/pieces.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/run_tensors.hpp"

namespace fovea::backends {
namespace {

using simd::Isa;

// The best instruction set of a described CPU; generic when the facts do not say.
Isa isa_of(const DeviceFacts& facts) {
  return simd::parse_isa(facts.get("isa").value_or("generic")).value_or(Isa::generic);
}

template <Isa kNeeded>
std::optional<Reason> needs(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cpu)
    return Reason{ReasonCode::platform, "platform", std::string(name(facts.platform())), "cpu",
                  "run it on the CPU"};
  const Isa available = isa_of(facts);
  if (simd::includes(available, kNeeded)) return std::nullopt;
  return Reason{ReasonCode::isa,
                "isa",
                std::string(simd::name(available)),
                std::string(simd::name(kNeeded)) + " or better",
                {}};
}

// Best first. bfloat16 products need the dot instruction; everywhere else 16-bit inputs are widened
// to float32 while packing, which is exact.
constexpr Instance kInstances[] = {
    {.name = "avx512bf16.bf16",
     .path = "cpu.avx512bf16",
     .dtypes = {Element::bf16},
     .piecewise = true,
     .compute_qk = "bf16",
     .compute_pv = "bf16",
     .device = needs<Isa::avx512bf16>,
     .built = FOVEA_HAVE_ISA_AVX512BF16 != 0},
    {.name = "avx512bf16.f32",
     .path = "cpu.avx512bf16",
     .dtypes = {Element::f32, Element::f16},
     .piecewise = true,
     .device = needs<Isa::avx512bf16>,
     .built = FOVEA_HAVE_ISA_AVX512BF16 != 0},
    {.name = "avx512.f32",
     .path = "cpu.avx512",
     .piecewise = true,
     .device = needs<Isa::avx512>,
     .built = FOVEA_HAVE_ISA_AVX512 != 0},
    {.name = "avx2.f32",
     .path = "cpu.avx2",
     .piecewise = true,
     .device = needs<Isa::avx2>,
     .built = FOVEA_HAVE_ISA_AVX2 != 0},
    {.name = "neon.f32",
     .path = "cpu.neon",
     .piecewise = true,
     .device = needs<Isa::neon>,
#if defined(__aarch64__)
     .built = true},
#else
     .built = false},
#endif
    {.name = "generic.f32",
     .path = "cpu.generic",
     .piecewise = true,
     .device = needs<Isa::generic>},
};

// The instruction set of a row is what follows "cpu." in its path.
Isa isa_of(const Instance& instance) {
  return simd::parse_isa(instance.path.substr(instance.path.find('.') + 1)).value_or(Isa::generic);
}

cpu_flash::FloatType float_type(DType dtype) {
  if (dtype == kF16) return cpu_flash::FloatType::f16;
  if (dtype == kBF16) return cpu_flash::FloatType::bf16;
  return cpu_flash::FloatType::f32;
}

cpu_flash::MaskType mask_type(DType dtype) {
  using cpu_flash::MaskType;
  if (dtype == kU8) return MaskType::uint8;
  if (dtype == kI32) return MaskType::int32;
  if (dtype == kI64) return MaskType::int64;
  if (dtype == kF32) return MaskType::f32;
  if (dtype == kF16) return MaskType::f16;
  if (dtype == kBF16) return MaskType::bf16;
  return MaskType::boolean;
}

// Contiguous strides of the mask of a problem; run() puts the tensor's own in their place.
cpu_flash::Mask planned_mask(const Problem& p) {
  cpu_flash::Mask mask;
  mask.type = mask_type(p.mask.dtype);
  int64_t stride = p.seq_kv;
  if (p.mask.per_query) mask.row = stride, stride *= p.seq_q;
  if (p.mask.per_head) mask.head = stride, stride *= p.heads_q;
  if (p.mask.per_batch) mask.batch = stride;
  return mask;
}

cpu_flash::Params planned_params(const Problem& p) {
  cpu_flash::Params params;
  params.dtype = float_type(p.dtype);
  params.out_dtype = float_type(p.out_dtype);
  params.batch = p.batch;
  params.heads_q = p.heads_q;
  params.heads_kv = p.heads_kv;
  params.seq_q = p.seq_q;
  params.seq_kv = p.seq_kv;
  params.head_dim = p.head_dim;
  params.dim_v = p.dim_v;
  params.scale = static_cast<float>(p.effective_scale());
  params.left = p.window.left;
  params.right = p.causal ? 0 : p.window.right;
  params.q = {nullptr, p.q_strides.batch, p.q_strides.seq, p.q_strides.head};
  params.k = {nullptr, p.k_strides.batch, p.k_strides.seq, p.k_strides.head};
  params.v = {nullptr, p.v_strides.batch, p.v_strides.seq, p.v_strides.head};
  if (p.out_layout == Layout::bhsd) {
    params.out_seq = p.dim_v;
    params.out_head = p.seq_q * p.dim_v;
  } else {
    params.out_head = p.dim_v;
    params.out_seq = p.heads_q * p.dim_v;
  }
  params.out_batch = p.seq_q * p.heads_q * p.dim_v;
  params.lse_rows = p.seq_q;
  params.documents = p.documents;
  if (p.mask.kind != MaskKind::none) {
    params.num_masks = 1;
    params.masks[0] = planned_mask(p);
  }
  return params;
}

// Stands for the offsets of packed documents where only sizes are asked for.
constexpr int32_t kNoOffsets[1] = {0};

size_t needed_workspace(const Problem& problem, const cpu_flash::KernelTable& kernels,
                        int workers) {
  cpu_flash::Params params = planned_params(problem);
  if (problem.layout == Layout::packed) params.cu_seqlens_q = params.cu_seqlens_kv = kNoOffsets;
  if (problem.pieces.empty()) return cpu_flash::workspace_bytes(params, kernels, workers);
  // The pieces run one after the other.
  size_t bytes = 0;
  for (const Piece& piece : problem.pieces)
    bytes = std::max(bytes, cpu_flash::workspace_bytes(cpu_flash::piece_params(params, piece, 0),
                                                       kernels, workers));
  return bytes;
}

Executor& executor_of(const ExecutionContext& context) noexcept {
  return context.executor != nullptr ? *context.executor : serial_executor();
}

class CpuFlashPlan final : public Plan {
 public:
  CpuFlashPlan(Problem problem, const cpu_flash::KernelTable& kernels, Executor& executor,
               Receipt receipt)
      : problem_(std::move(problem)),
        params_(planned_params(problem_)),
        kernels_(kernels),
        executor_(executor),
        receipt_(std::move(receipt)) {}

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& t, Workspace workspace, Stream) const noexcept override {
    FOVEA_CHECK(check_tensors(problem_, t));
    FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
    FOVEA_CHECK(check_values(t, problem_));
    cpu_flash::Params params = params_;
    params.q.data = t.q.data;
    params.k.data = t.k.data;
    params.v.data = t.v.data;
    params.out = t.out.data;
    params.lse = problem_.lse ? static_cast<float*>(t.lse.data) : nullptr;
    if (problem_.layout == Layout::packed) {
      params.cu_seqlens_q = static_cast<const int32_t*>(t.cu_seqlens_q.data);
      params.cu_seqlens_kv = static_cast<const int32_t*>(t.cu_seqlens_kv.data);
    }
    if (problem_.has_kv_lengths) {
      params.kv_lengths = t.kv_lengths.data;
      params.kv_lengths_64 = t.kv_lengths.dtype == kI64;
    }
    if (params.num_masks > 0) set_mask(t.mask, params.masks[0]);
    if (problem_.pieces.empty()) cpu_flash::run(params, kernels_, workspace.data, executor_);
    int64_t begin = 0;
    for (const Piece& piece : problem_.pieces) {
      cpu_flash::run(cpu_flash::piece_params(params, piece, begin), kernels_, workspace.data,
                     executor_);
      begin += piece.rows;
    }
    return {};
  }

 private:
  // The tensor's strides on the axes that are not broadcast. Axes from the right: key, query, head;
  // the batch is the first one, also of a 2-D key mask.
  void set_mask(const TensorView& view, cpu_flash::Mask& mask) const noexcept {
    const size_t rank = static_cast<size_t>(view.rank);
    mask.data = view.data;
    if (problem_.mask.per_query) mask.row = view.stride[rank - 2];
    if (problem_.mask.per_head) mask.head = view.stride[rank - 3];
    if (problem_.mask.per_batch) mask.batch = view.stride[0];
  }

  Problem problem_;
  cpu_flash::Params params_;
  const cpu_flash::KernelTable& kernels_;
  Executor& executor_;
  Receipt receipt_;
};

class CpuFlashBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:cpu_flash"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    const Choice choice = choose(kInstances, problem, context);
    ExecutionPathResult result = report(name, "fovea", choice, context);
    apply_spec(result, spec);
    if (const cpu_flash::KernelTable* kernels = kernels_for(choice, problem))
      result.workspace_bytes = needed_workspace(problem, *kernels, executor_of(context).workers());
    return result;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const ExecutionPathResult result = resolve(name, problem, spec, context);
    FOVEA_CHECK(admit(result, problem, context));
    const Choice choice = choose(kInstances, problem, context);
    const cpu_flash::KernelTable* kernels = kernels_for(choice, problem);
    if (kernels == nullptr)
      return Error{ErrorCode::internal,
                   "cpu_flash: instance " + result.instance + " has no kernel in this binary",
                   {}};
    Receipt receipt = make_receipt(result, *choice.instance);
    receipt.device = "cpu";
    receipt.isa = std::string(simd::name(isa_of(*choice.instance)));
    if (kernels->group > 1) receipt.padding_head_dim = problem.head_dim % kernels->group;
    return std::unique_ptr<Plan>(std::make_unique<CpuFlashPlan>(
        problem, *kernels, executor_of(context), std::move(receipt)));
  }

 private:
  static const cpu_flash::KernelTable* kernels_for(const Choice& choice, const Problem& problem) {
    if (choice.instance == nullptr) return nullptr;
    return cpu_flash::find_kernels(isa_of(*choice.instance), float_type(problem.dtype));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_cpu_flash_backend() {
  return std::make_shared<const CpuFlashBackend>();
}

}  // namespace fovea::backends
