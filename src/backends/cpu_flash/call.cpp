#include "src/backends/cpu_flash/call.hpp"

#include <algorithm>
#include <string>

#include "src/backends/cpu_flash/kernel_table.hpp"
#include "src/backends/cpu_flash/pieces.hpp"

namespace fovea::backends {
namespace {

using simd::Isa;

// The best instruction set of a described CPU; generic when the facts do not say.
Isa isa_of(const DeviceFacts& facts) {
  return simd::parse_isa(facts.get("isa").value_or("generic")).value_or(Isa::generic);
}

template <Isa kNeeded>
std::optional<Reason> needs(const DeviceFacts& facts) {
  if (auto reason = needs_cpu(facts)) return reason;
  const Isa available = isa_of(facts);
  if (simd::includes(available, kNeeded)) return std::nullopt;
  return Reason{ReasonCode::isa,
                "isa",
                std::string(simd::name(available)),
                std::string(simd::name(kNeeded)) + " or better",
                {}};
}

#if defined(__aarch64__)
constexpr bool kHaveNeon = true;
#else
constexpr bool kHaveNeon = false;
#endif

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

}  // namespace

// bfloat16 products need the dot instruction; everywhere else 16-bit inputs are widened to float32
// while packing, which is exact.
std::array<Instance, 7> cpu_flash_instances(bool lists) {
  std::array<Instance, 7> rows = {{{.name = lists ? "amx.bf16.list" : "amx.bf16",
                                    .path = "cpu.amx",
                                    .dtypes = {Element::bf16},
                                    .compute_qk = "bf16",
                                    .compute_pv = "bf16",
                                    .device = needs<Isa::amx>,
                                    .built = FOVEA_HAVE_ISA_AMX != 0},
                                   {.name = lists ? "avx512bf16.bf16.list" : "avx512bf16.bf16",
                                    .path = "cpu.avx512bf16",
                                    .dtypes = {Element::bf16},
                                    .compute_qk = "bf16",
                                    .compute_pv = "bf16",
                                    .device = needs<Isa::avx512bf16>,
                                    .built = FOVEA_HAVE_ISA_AVX512BF16 != 0},
                                   {.name = lists ? "avx512bf16.f32.list" : "avx512bf16.f32",
                                    .path = "cpu.avx512bf16",
                                    .dtypes = {Element::f32, Element::f16},
                                    .device = needs<Isa::avx512bf16>,
                                    .built = FOVEA_HAVE_ISA_AVX512BF16 != 0},
                                   {.name = lists ? "avx512.f32.list" : "avx512.f32",
                                    .path = "cpu.avx512",
                                    .device = needs<Isa::avx512>,
                                    .built = FOVEA_HAVE_ISA_AVX512 != 0},
                                   {.name = lists ? "avx2.f32.list" : "avx2.f32",
                                    .path = "cpu.avx2",
                                    .device = needs<Isa::avx2>,
                                    .built = FOVEA_HAVE_ISA_AVX2 != 0},
                                   {.name = lists ? "neon.f32.list" : "neon.f32",
                                    .path = "cpu.neon",
                                    .device = needs<Isa::neon>,
                                    .built = kHaveNeon},
                                   {.name = lists ? "generic.f32.list" : "generic.f32",
                                    .path = "cpu.generic",
                                    .device = needs<Isa::generic>}}};
  for (Instance& row : rows) {
    row.sparse = lists;
    row.packed = !lists;
    row.piecewise = !lists;
  }
  return rows;
}

Receipt make_cpu_flash_receipt(const ExecutionPathResult& report, const Instance& instance,
                               const Problem& problem) {
  Receipt receipt = make_cpu_receipt(report, instance);
  const Isa isa = isa_of(instance);
  receipt.isa = std::string(simd::name(isa));
  const cpu_flash::KernelTable* kernels = cpu_flash::find_kernels(isa, float_type(problem.dtype));
  if (kernels != nullptr) {
    const int64_t step = int64_t{kernels->group} * kernels->depth;
    receipt.padding_head_dim = (step - problem.head_dim % step) % step;
  }
  return receipt;
}

Error missing_kernel(const ExecutionPathResult& report) {
  return {ErrorCode::internal,
          name(report.backend) + ": instance " + report.instance + " has no kernel in this binary",
          {}};
}

std::optional<CpuFlashCall> CpuFlashCall::make(const Problem& problem, const Instance& instance,
                                               const cpu_flash::BlockList* lists) {
  const cpu_flash::KernelTable* kernels =
      cpu_flash::find_kernels(isa_of(instance), float_type(problem.dtype));
  if (kernels == nullptr) return std::nullopt;
  CpuFlashCall call(problem, *kernels);
  if (lists != nullptr) call.params_.blocks = *lists;
  return call;
}

CpuFlashCall::CpuFlashCall(const Problem& problem, const cpu_flash::KernelTable& kernels)
    : mask_(problem.mask),
      packed_(problem.layout == Layout::packed),
      has_kv_lengths_(problem.has_kv_lengths),
      lse_(problem.lse),
      pieces_(problem.pieces),
      params_(planned_params(problem)),
      kernels_(&kernels) {}

size_t CpuFlashCall::workspace_bytes(int workers) const noexcept {
  // Stands for offsets and counts where only sizes are asked for.
  static constexpr int32_t kNone[1] = {0};
  cpu_flash::Params params = params_;
  if (packed_) params.cu_seqlens_q = params.cu_seqlens_kv = kNone;
  if (params.blocks.block_q != 0) params.blocks.counts = kNone;
  if (pieces_.empty()) return cpu_flash::workspace_bytes(params, *kernels_, workers);
  size_t bytes = 0;
  for (const Piece& piece : pieces_)
    bytes = std::max(bytes, cpu_flash::workspace_bytes(cpu_flash::piece_params(params, piece, 0),
                                                       *kernels_, workers));
  return bytes;
}

void CpuFlashCall::run(const AttentionTensors& t, const cpu_flash::BlockList* lists,
                       void* workspace, Executor& executor) const noexcept {
  cpu_flash::Params params = params_;
  params.q.data = t.q.data;
  params.k.data = t.k.data;
  params.v.data = t.v.data;
  params.out = t.out.data;
  params.lse = lse_ ? static_cast<float*>(t.lse.data) : nullptr;
  if (packed_) {
    params.cu_seqlens_q = static_cast<const int32_t*>(t.cu_seqlens_q.data);
    params.cu_seqlens_kv = static_cast<const int32_t*>(t.cu_seqlens_kv.data);
  }
  if (has_kv_lengths_) {
    params.kv_lengths = t.kv_lengths.data;
    params.kv_lengths_64 = t.kv_lengths.dtype == kI64;
  }
  if (params.num_masks > 0) set_mask(t.mask, params.masks[0]);
  if (lists != nullptr) params.blocks = *lists;
  if (pieces_.empty()) cpu_flash::run(params, *kernels_, workspace, executor);
  int64_t begin = 0;
  for (const Piece& piece : pieces_) {
    cpu_flash::run(cpu_flash::piece_params(params, piece, begin), *kernels_, workspace, executor);
    begin += piece.rows;
  }
}

// The tensor's strides on the axes that are not broadcast. Axes from the right: key, query, head;
// the batch is the first one, also of a 2-D key mask.
void CpuFlashCall::set_mask(const TensorView& view, cpu_flash::Mask& mask) const noexcept {
  const size_t rank = static_cast<size_t>(view.rank);
  mask.data = view.data;
  if (mask_.per_query) mask.row = view.stride[rank - 2];
  if (mask_.per_head) mask.head = view.stride[rank - 3];
  if (mask_.per_batch) mask.batch = view.stride[0];
}

}  // namespace fovea::backends
