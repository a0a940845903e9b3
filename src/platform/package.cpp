#include "src/platform/package.hpp"

#include "src/core/text.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kFlashInfer = "pip install flashinfer-python";

constexpr Package kPackages[] = {
    {"cudnn",
     "cudnn",
     "cudnn",
     "pip install nvidia-cudnn-cu13, or apt-get install cudnn9-cuda-13",
     {},
     {}},
    {"flash_attn",
     "flash_attn",
     "flash_attn",
     "pip install flash-attn --no-build-isolation",
     {},
     {}},
    {"flash_attn_3",
     "flash_attn_3",
     "flash_attn_3",
     "build hopper/ of github.com/Dao-AILab/flash-attention",
     {},
     {}},
    {"fa4", "fa4", "fa4", "pip install flash-attn-4", "cute (FlashAttention 4)", "flash_attn"},
    {"flashinfer", "flashinfer", "flashinfer", kFlashInfer, {}, {}},
    {"flashinfer_prefill", "flashinfer_prefill", "flashinfer", kFlashInfer,
     "BatchPrefillWithRaggedKVCacheWrapper", "flashinfer"},
    {"trtllm", "trtllm", "flashinfer", kFlashInfer, "trtllm_ragged_attention_deepseek",
     "flashinfer"},
    {"sageattention",
     "sageattention",
     "sageattention",
     "pip install git+https://github.com/thu-ml/SageAttention --no-build-isolation",
     {},
     {}},
    {"sageattn3",
     "sageattn3",
     "sageattn3",
     "build sageattention3_blackwell/ of github.com/thu-ml/SageAttention",
     {},
     {}},
    {"spas_sage_attn",
     "spas_sage_attn",
     "spas_sage_attn",
     "pip install git+https://github.com/thu-ml/SpargeAttn --no-build-isolation",
     {},
     {}},
    {"sparse_sageattn",
     "sparse_sageattn",
     "sparse_sageattn",
     "pip install sparse-sageattn",
     {},
     {}},
    {"block_sparse_attn",
     "block_sparse_attn",
     "block_sparse_attn",
     "pip install git+https://github.com/mit-han-lab/Block-Sparse-Attention --no-build-isolation",
     {},
     {}},
    {"tf_kernel",
     "tf_kernel",
     "tf_kernel",
     "build the tf-kernel of TeleFuser (make build)",
     {},
     {}},
    {"hub_kernels", "hub_kernels", "hub_kernels", "pip install 'kernels>=0.16.1'", {}, {}},
    {"fastvideo_kernel",
     "fastvideo_kernel",
     "fastvideo_kernel",
     "pip install fastvideo-kernel",
     {},
     {}},
    {"aiter", "aiter", "aiter", "pip install amd-aiter", {}, {}},
    {"mindiesd", "mindiesd", "mindiesd", "pip install mindiesd", {}, {}},
    {"auto_round", "auto_round", "auto_round", "pip install auto-round-lib", {}, {}},
    {"musa_flash_attn",
     "flash_attn",
     "flash_attn",
     "install the flash_attn of the MUSA SDK",
     {},
     {}},
    {"torch", {}, "torch", "pip install torch", {}, {}},
    {"vllm_xpu_kernels", {}, "vllm_xpu_kernels", "pip install vllm-xpu-kernels", {}, {}},
    {"vllm_omni", {}, "vllm_omni", "pip install vllm-omni", {}, {}},
};

}  // namespace

const Package& package(std::string_view id) noexcept {
  for (const Package& row : kPackages)
    if (row.id == id) return row;
  return kPackages[0];
}

PackageState state(const Package& package, const DeviceFacts& facts) noexcept {
  if (package.fact.empty() || facts.flag(package.fact)) return PackageState::present;
  const bool there =
      facts.fault(package.fact) || facts.flag(package.part_of) || facts.fault(package.part_of);
  return there ? PackageState::broken : PackageState::missing;
}

std::string fault(const Package& package, const DeviceFacts& facts) {
  for (const std::string_view fact : {package.fact, package.part_of}) {
    const std::optional<std::string_view> cause = facts.fault(fact);
    if (!cause) continue;
    return cause->empty() ? "installed but broken"
                          : text::concat("installed but broken (", *cause, ')');
  }
  const std::string version = facts.version(package.part_of)
                                  ? text::concat(*facts.get(package.part_of), ' ')
                                  : std::string("installed ");
  return text::concat(version, "without ", package.symbol);
}

std::string describe(const Package& package, const DeviceFacts& facts) {
  for (const std::string_view fact : {package.fact, package.part_of})
    if (facts.version(fact)) return text::concat(package.name, ' ', *facts.get(fact));
  return std::string(package.name);
}

std::string wanted(const Package& package) {
  if (package.symbol.empty()) return std::string(package.name);
  return text::concat(package.part_of, " with ", package.symbol);
}

}  // namespace fovea::platform
