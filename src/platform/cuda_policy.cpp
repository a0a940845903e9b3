#include "src/platform/policy.hpp"

namespace fovea::platform {
namespace {

constexpr std::string_view kBlockSparseSm90 = "builtin:block_sparse_sm90";
constexpr std::string_view kFlash = "builtin:flash";
constexpr std::string_view kFlashSm80 = "builtin:flash_sm80";
constexpr std::string_view kFlashSm90 = "builtin:flash_sm90";
constexpr std::string_view kSdpa = "builtin:cuda_sdpa";
constexpr std::string_view kCudnn = "builtin:cudnn";

constexpr Check kAmpere = sm_range(80);
constexpr Check kHopper = sm_range(90, 90);
constexpr Check kAmpereToHopper = sm_range(80, 90);
constexpr Check kBlackwell = sm_range(100);
constexpr Check kDatacenterBlackwell = sm_range(100, 109);
constexpr Check kSage = sm_set({80, 86, 89, 90, 120, 121});
constexpr Check kFlash4 = sm_ranges({{90, 90}, {100, 109}, {120, 129}});
constexpr Check kSparge = sm_set({80, 86, 89, 90});
// The FlashAttention packages do not load on these.
constexpr Check kNotTuring = name_without({"Turing", "Tesla", "T4"});

constexpr Check kSage2 = not_older("sageattention", {2, 0, 0});
constexpr Check kHub = not_older("hub_kernels", {0, 16, 1});
constexpr Check kCuda11_6 = toolkit({11, 6, 0});
constexpr Check kCuda11_8 = toolkit({11, 8, 0});
constexpr Check kCuda12_0 = toolkit({12, 0, 0});
constexpr Check kCuda12_8 = toolkit({12, 8, 0});

constexpr std::string_view kPlain = "TORCH_SDPA";
constexpr std::string_view kDense = "FLASH_ATTN or TORCH_SDPA";

using namespace backend;

constexpr Row kRows[] = {
    tried(own(TORCH_SDPA, kSdpa, "torch's own attention through its binding", sm_range(75),
              embedded(Family::portable)),
          "sm_90"),
    by_package(TORCH_SDPA, "torch", {}),

    tried(library(CUDNN_ATTN, Provider::cudnn, kCudnn, "FLASHINFER_ATTN or TORCH_SDPA", kAmpere,
                  installed("cudnn"), not_older("cudnn", {9, 0, 0}), head_multiple(8, 256)),
          "sm_90"),

    tried(own(FLASH_ATTN, kFlash, kPlain, kAmpereToHopper, embedded(Family::sm80)), "sm_90"),
    with_package(FLASH_ATTN, "flash_attn_3", kPlain, kAmpereToHopper, kNotTuring),
    with_package(FLASH_ATTN, "flash_attn", kPlain, kAmpereToHopper, kNotTuring),
    with_package(FLASH_ATTN, "fa4", kPlain, kBlackwell),

    tried(own(FLASH_ATTN_2, kFlashSm80, kPlain, kAmpere, embedded(Family::sm80), kCuda11_6),
          "sm_90"),
    with_package(FLASH_ATTN_2, "flash_attn", kPlain, kAmpere, kCuda11_6),

    tried(own(FLASH_ATTN_3, kFlashSm90, kDense, kHopper, embedded(Family::sm90), kCuda12_0),
          "sm_90"),
    with_package(FLASH_ATTN_3, "flash_attn_3", kDense, kHopper, kCuda12_0),

    tried(with_package(FLASH_ATTN_4, "fa4", "FLASH_ATTN_2 or TORCH_SDPA", kFlash4, kCuda12_8),
          "sm_90"),

    tried(with_package(SAGE_ATTN, "sageattention", kDense, kSage), "sm_90"),
    with_package(SAGE_ATTN_2_8_8, "tf_kernel", kDense, kAmpere, kCuda11_8),
    with_package(SAGE_ATTN_2_8_8, "sageattention", kDense, kAmpere, kCuda11_8, kSage2),
    with_package(SAGE_ATTN_2_8_16, "tf_kernel", kDense, kAmpere, kCuda11_8),
    with_package(SAGE_ATTN_2_8_16, "sageattention", kDense, kAmpere, kCuda11_8, kSage2),
    with_package(SAGE_ATTN_2_8_8_SM90, "tf_kernel", "SAGE_ATTN_2_8_8", kHopper, kCuda11_8),
    with_package(SAGE_ATTN_2_8_8_SM90, "sageattention", "SAGE_ATTN_2_8_8", kHopper, kCuda11_8,
                 kSage2),
    with_package(SAGE_ATTN_3, "sageattn3", kPlain, kBlackwell, head_set({64, 128, 256})),

    tried(own(RADIAL_ATTN, kBlockSparseSm90, kDense, kHopper, embedded(Family::sm90), kCuda12_0),
          "sm_90"),
    with_package(RADIAL_ATTN, "tf_kernel", kDense, kAmpere, kCuda11_8),
    with_package(RADIAL_ATTN, "flashinfer", kDense, kAmpere, kCuda11_8),
    with_package(RADIAL_ATTN, "sageattention", kDense, kAmpere, kCuda11_8),
    tried(own(LOCAL_SPARSE_ATTN, kBlockSparseSm90, kDense, kHopper, embedded(Family::sm90),
              kCuda12_0),
          "sm_90"),
    with_package(LOCAL_SPARSE_ATTN, "tf_kernel", kDense, kAmpere, kCuda11_6),
    with_package(LOCAL_SPARSE_ATTN, "block_sparse_attn", kDense, kAmpere, kCuda11_6),
    tried(own(SPARGE_ATTN, kBlockSparseSm90, kDense, kHopper, embedded(Family::sm90), kCuda12_0),
          "sm_90"),
    with_package(SPARGE_ATTN, "spas_sage_attn", kDense, kSparge, kCuda12_0, head_set({64, 128})),
    with_package(SPARGE_ATTN, "sparse_sageattn", kDense, kSparge, kCuda12_0, head_set({64, 128})),
    tried(own(BLOCK_SPARSE_ATTN, kBlockSparseSm90, kDense, kHopper, embedded(Family::sm90),
              kCuda12_0),
          "sm_90"),
    with_package(BLOCK_SPARSE_ATTN, "block_sparse_attn", kDense, kAmpere, kCuda11_6),
    with_package(FASTVIDEO_VSA, "fastvideo_kernel", kDense),

    with_package(FLASHINFER_ATTN, "flashinfer_prefill", kPlain, head_set({64, 128, 256})),
    with_package(TRTLLM_ATTN, "trtllm", "CUDNN_ATTN, FLASH_ATTN or TORCH_SDPA",
                 kDatacenterBlackwell, head_set({128})),
    with_package(FLASH_ATTN_HUB, "hub_kernels", kDense, kAmpereToHopper, kHub),
    with_package(FLASH_ATTN_3_HUB, "hub_kernels", kDense, kHopper, kHub),
    by_package(VDNH3_ATTN, "vllm_omni", kDense, same_as(FLASH_ATTN)),
};

// Before Blackwell only FLASH_ATTN and TORCH_SDPA are chosen automatically.
constexpr Preference kOrder[] = {
    {TRTLLM_ATTN, kBlackwell, {mask_free(), head_known({128})}},
    {CUDNN_ATTN, kBlackwell, {understood_at_least("cudnn", {9, 5, 0})}},
    {FLASHINFER_ATTN, kBlackwell, {head_known({64, 128, 256})}},
    {FLASH_ATTN},
    {TORCH_SDPA},
};

constexpr Policy kPolicy{PlatformId::cuda, kRows, kOrder};

}  // namespace

const Policy& cuda_policy() noexcept { return kPolicy; }

}  // namespace fovea::platform
