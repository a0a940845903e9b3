#include "src/backends/package/kernels.hpp"

#include <algorithm>

#include "fovea/calibration.hpp"
#include "fovea/platform.hpp"
#include "src/core/text.hpp"
#include "src/platform/quant_policy.hpp"

namespace fovea::backends {
namespace {

constexpr Set<Element> kHalf = {Element::f16, Element::bf16};
constexpr Set<MaskKind> kNoMask = {MaskKind::none};
constexpr Set<MaskKind> kKeyMask = {MaskKind::none, MaskKind::keys};
constexpr Set<MaskKind> kKeepMask = {MaskKind::none, MaskKind::keys, MaskKind::boolean};

// 16-bit inputs and outputs, key padding by lengths or a mask of keys.
Instance flash() {
  Instance row;
  row.dtypes = kHalf;
  row.head_dim = row.dim_v = {1, 256, 1};
  row.masks = kKeyMask;
  row.f32_out = false;
  return row;
}

// Kernels that see neither masks nor lengths nor documents.
Instance dense_only() {
  Instance row = flash();
  row.masks = kNoMask;
  row.window = row.kv_lengths = row.packed = false;
  return row;
}

Instance quantised() {
  Instance row = dense_only();
  row.lossy = true;
  row.compute_qk = row.compute_pv = "quantised";
  return row;
}

Instance block_sparse() {
  Instance row = dense_only();
  row.sparse = true;
  row.lossy = true;
  row.causal = false;
  return row;
}

}  // namespace

Instance package_kernel(BackendName backend, PlatformId platform) {
  using namespace backend;
  Instance row = flash();
  if (backend == TORCH_SDPA) {
    row = {};
    row.window = row.packed = row.f32_out = false;
  } else if (backend == FLASHINFER_ATTN) {
    row.masks = kKeepMask;
  } else if (backend == TRTLLM_ATTN) {
    row.masks = kNoMask;
    row.window = false;
  } else if (backend == SAGE_ATTN || backend == SAGE_ATTN_2_8_8 || backend == SAGE_ATTN_2_8_16 ||
             backend == SAGE_ATTN_2_8_8_SM90 || backend == AITER_QUANT_ATTN) {
    row = quantised();
  } else if (backend == SAGE_ATTN_3) {
    row = quantised();
    row.gqa = false;
  } else if (backend == SPARGE_ATTN || backend == RADIAL_ATTN || backend == LOCAL_SPARSE_ATTN ||
             backend == BLOCK_SPARSE_ATTN || backend == RAINFUSION_ATTN ||
             backend == FASTVIDEO_VSA) {
    row = block_sparse();
  } else if (platform == PlatformId::npu) {
    row.masks = kKeepMask;
  }
  return row;
}

bool skips_tiles(BackendName backend) noexcept { return backend == backend::TRTLLM_ATTN; }

bool quantises(const AttentionSpec* spec, DType dtype) noexcept {
  if (spec == nullptr || !spec->quant) return false;
  const std::string_view own = dtype == kF16 ? "float16" : dtype == kBF16 ? "bfloat16" : "";
  const auto coarser = [&](const std::optional<std::string>& type) { return type && *type != own; };
  return coarser(spec->quant->dtype_qk) || coarser(spec->quant->dtype_vo);
}

std::vector<Reason> option_refusals(const AttentionSpec& spec, const Problem& problem,
                                    const DeviceFacts& facts) {
  std::vector<Reason> reasons;
  if (spec.quant) {
    reasons = platform::quant_refusals(spec.backend, *spec.quant, facts);
    if (spec.backend == backend::TRTLLM_ATTN && spec.quant->dtype_qk && problem.causal)
      reasons.push_back({ReasonCode::option_value, "quant.dtype_qk",
                         text::concat(*spec.quant->dtype_qk, " with causal masking"),
                         "calls without causal masking", "remove quant for this role"});
  }
  if (spec.aiter_quant) {
    const std::vector<std::string_view> formats = aiter_formats(facts);
    const std::string& format = spec.aiter_quant->format;
    if (std::find(formats.begin(), formats.end(), format) == formats.end())
      reasons.push_back({ReasonCode::option_value, "aiter_quant.format", format,
                         text::join(formats), "choose a format of this device"});
  }
  if (spec.skip_softmax &&
      decide_skip(*spec.skip_softmax, 0, std::nullopt).state == SkipState::uncalibrated)
    reasons.push_back({ReasonCode::option_value, "skip_softmax.target_sparsity",
                       text::format_number(*spec.skip_softmax->target_sparsity),
                       "a checkpoint's calibration of this layer",
                       "give the layer its name and the transformer's config.json as calibration, "
                       "or set threshold instead"});
  return reasons;
}

}  // namespace fovea::backends
