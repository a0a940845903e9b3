// Every name that a user can type is chosen by name, reached (or never reached) by default, and
// refused where it cannot run. A name without a row here fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/platform/policy_cases.hpp"

namespace fovea {
namespace {

using namespace policy_cases;
using namespace backend;
using P = PlatformId;
using C = ReasonCode;

struct Name {
  BackendName backend;
  P platform;
  const char* accepted;  // facts under which an explicit choice runs
  P elsewhere;
  const char* refused;  // facts under which it is refused with `code`
  C code;
  const char* chosen;  // facts under which it is the automatic choice; null: never automatic
};

constexpr Name kNames[] = {
    {TORCH_SDPA, P::cuda, "sm=75", P::cuda, "sm=75,kernels=none", C::architecture, "sm=75"},
    {CUDNN_ATTN, P::cuda, "sm=90,cudnn=9.19", P::cuda, "sm=90", C::package, "sm=100,cudnn=9.19"},
    {FLASH_ATTN, P::cuda, "sm=90", P::cuda, "sm=75", C::architecture, "sm=90"},
    {FLASH_ATTN_2, P::cuda, "sm=80", P::cuda, "sm=75", C::architecture, nullptr},
    {FLASH_ATTN_3, P::cuda, "sm=90", P::cuda, "sm=80", C::architecture, nullptr},
    {FLASH_ATTN_4, P::cuda, "sm=100,fa4=1", P::cuda, "sm=89,fa4=1", C::architecture, nullptr},
    {SAGE_ATTN, P::cuda, "sm=90,sageattention=2.2", P::cuda, "sm=75,sageattention=2.2",
     C::architecture, nullptr},
    {SAGE_ATTN_2_8_8, P::cuda, "sm=80,tf_kernel=1", P::cuda, "sm=75,tf_kernel=1", C::architecture,
     nullptr},
    {SAGE_ATTN_2_8_16, P::cuda, "sm=80,sageattention=2.2", P::cuda, "sm=80,sageattention=1.0",
     C::version, nullptr},
    {SAGE_ATTN_2_8_8_SM90, P::cuda, "sm=90,tf_kernel=1", P::cuda, "sm=80,tf_kernel=1",
     C::architecture, nullptr},
    {SAGE_ATTN_3, P::cuda, "sm=120,sageattn3=1", P::cuda, "sm=90,sageattn3=1", C::architecture,
     nullptr},
    {RADIAL_ATTN, P::cuda, "sm=90,flashinfer=0.6", P::cuda, "sm=75,flashinfer=0.6", C::architecture,
     nullptr},
    {LOCAL_SPARSE_ATTN, P::cuda, "sm=90,block_sparse_attn=1", P::cuda, "sm=75,block_sparse_attn=1",
     C::architecture, nullptr},
    {SPARGE_ATTN, P::cuda, "sm=90,spas_sage_attn=1", P::cuda, "sm=75,spas_sage_attn=1",
     C::architecture, nullptr},
    {BLOCK_SPARSE_ATTN, P::cuda, "sm=90,block_sparse_attn=1", P::cuda, "sm=75,block_sparse_attn=1",
     C::architecture, nullptr},
    {RAINFUSION_ATTN, P::npu, "mindiesd=3.1", P::npu, "", C::package, nullptr},
    {FASTVIDEO_VSA, P::cuda, "sm=90,fastvideo_kernel=1", P::rocm, "gfx=gfx942", C::platform,
     nullptr},
    {FLASHINFER_ATTN, P::cuda, "sm=90,flashinfer=0.6,flashinfer_prefill=1", P::cuda,
     "sm=90,flashinfer=0.6", C::package, "sm=100,flashinfer=0.6,flashinfer_prefill=1"},
    {TRTLLM_ATTN, P::cuda, "sm=100,flashinfer=0.6,trtllm=1", P::cuda,
     "sm=120,flashinfer=0.6,trtllm=1", C::architecture, "sm=100,flashinfer=0.6,trtllm=1"},
    {FLASH_ATTN_HUB, P::cuda, "sm=80,hub_kernels=0.16.1", P::cuda, "sm=100,hub_kernels=0.16.1",
     C::architecture, nullptr},
    {FLASH_ATTN_3_HUB, P::cuda, "sm=90,hub_kernels=0.16.1", P::cuda, "sm=80,hub_kernels=0.16.1",
     C::architecture, nullptr},
    {AITER_QUANT_ATTN, P::rocm, "gfx=gfx942,aiter=0.1.7", P::rocm, "gfx=gfx90a,aiter=0.1.7",
     C::architecture, nullptr},
    {VDNH3_ATTN, P::cuda, "sm=90", P::cuda, "sm=75", C::architecture, nullptr},
    {REFERENCE, P::cpu, "isa=avx2", P::cuda, "sm=90", C::platform, nullptr},
};

constexpr PolicyQuery kQuery{128, false, {}};

const Name* find(BackendName backend) {
  const auto* row = std::find_if(std::begin(kNames), std::end(kNames),
                                 [&](const Name& each) { return each.backend == backend; });
  return row == std::end(kNames) ? nullptr : row;
}

TEST(EveryName, HasItsRow) {
  for (const BackendNameInfo& info : backend_names())
    EXPECT_NE(find(info.name), nullptr)
        << info.canonical << " has no tests of its selection in this file";
  EXPECT_EQ(backend_names().size(), std::size(kNames));
}

TEST(EveryName, ExplicitChoiceRunsWhereItCan) {
  for (const Name& row : kNames)
    expect_explicit(row.platform, {row.accepted, row.backend, 128, {}, {}});
}

TEST(EveryName, IncompatibleChoiceIsRefusedWithItsReason) {
  for (const Name& row : kNames) {
    SCOPED_TRACE(name(row.backend));
    expect_explicit(row.elsewhere, {row.refused, row.backend, 128, row.code, {}});
  }
}

TEST(EveryName, DefaultRouteIsTheDeclaredOne) {
  for (const Name& row : kNames) {
    SCOPED_TRACE(name(row.backend));
    if (row.chosen != nullptr) {
      PolicyQuery query = kQuery;
      // With a promise of no masks the maskless kernel comes first.
      query.mask_free = row.backend == TRTLLM_ATTN;
      EXPECT_EQ(chosen(*platform_for(row.platform, row.chosen), query), name(row.backend));
      continue;
    }
    const auto list = order(*platform_for(row.platform, row.accepted), kQuery);
    EXPECT_EQ(std::count(list.begin(), list.end(), name(row.backend)), 0);
  }
}

}  // namespace
}  // namespace fovea
