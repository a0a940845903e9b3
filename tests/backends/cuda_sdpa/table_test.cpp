// What the plain kernel takes and refuses: answered without a device, in every build.
#include <gtest/gtest.h>

#include "src/backends/cuda_sdpa/backend.hpp"

namespace fovea::backends {
namespace {

ExecutionContext on(std::string_view facts) {
  ExecutionContext context;
  auto parsed = parse_facts(PlatformId::cuda, facts);
  EXPECT_TRUE(parsed.has_value());
  if (parsed) context.facts = *parsed;
  context.local = false;
  return context;
}

Problem problem(std::string_view text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed ? *parsed : Problem{};
}

ExecutionPathResult ask(const Problem& p, std::string_view facts = "sm=75") {
  return make_cuda_sdpa_backend()->resolve(backend::TORCH_SDPA, p, nullptr, on(facts));
}

TEST(CudaSdpaTable, TakesTheWholeContract) {
  for (const char* text :
       {"f32 b2 h8 hk=2 s512 sk=300 d64 mask=causal+bias lse=1", "bf16 b1 h8 s512 d33 dv=512",
        "f16 b2 h8 s64 d128 mask=bool kvlen=3,64", "f16 b2 h8 s64 d128 mask=keys window=4,4",
        "bf16 b1 h8 s300 d64 layout=packed docs=100:100,200:200",
        "bf16 b1 h8 s512 d128 strides=expanded", "f32 b1 h8 s512 d128 layout=bhsd"}) {
    EXPECT_EQ(ask(problem(text)).support, SupportStatus::unmigrated) << text;
    EXPECT_EQ(ask(problem(text)).path, "cuda.sdpa") << text;
  }
}

TEST(CudaSdpaTable, RefusalsNameTheField) {
  Problem p = problem("f32 b1 h8 s512 d513");
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::head_dim);
  p = problem("f32 b1 h8 s512 d64");
  p.mask = {MaskKind::boolean, kI64, false, false, true};
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::mask_dtype);
  p = problem("f32 b1 h8 s512 d64");
  ASSERT_EQ(ask(p, "sm=70").support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p, "sm=70").reasons.front().code, ReasonCode::architecture);
  p.batch = int64_t{1} << 29;
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::seq_limit);
}

TEST(CudaSdpaTable, PlansAreMadeWhereReportsSayTheyCan) {
  const auto backend = make_cuda_sdpa_backend();
  const Problem p = problem("f32 b1 h8 s512 d64");
  ExecutionContext context = on("sm=90");
  EXPECT_FALSE(backend->plan(backend::TORCH_SDPA, p, nullptr, context).has_value());
  context.local = true;
  const auto report = backend->resolve(backend::TORCH_SDPA, p, nullptr, context);
  const auto plan = backend->plan(backend::TORCH_SDPA, p, nullptr, context);
  EXPECT_EQ(plan.has_value(), report.support != SupportStatus::unsupported);
}

}  // namespace
}  // namespace fovea::backends
