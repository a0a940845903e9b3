// Which instance a problem gets, and why not: answered without a device, in every build.
#include <gtest/gtest.h>

#include <string>

#include "src/backends/flash/backend.hpp"
#include "src/backends/flash_sm80/backend.hpp"
#include "src/backends/flash_sm80/instances.hpp"

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

ExecutionPathResult ask(const Problem& p, std::string_view facts = "sm=80") {
  return make_flash_sm80_backend()->resolve(backend::FLASH_ATTN_2, p, nullptr, on(facts));
}

TEST(FlashSm80Table, EveryProblemGetsTheNarrowestInstance) {
  const std::pair<const char*, const char*> table[] = {
      {"bf16 b1 h24 s4096 d128", "plain_d128"},
      {"f16 b1 h24 s4096 d64", "plain_d64"},
      {"bf16 b1 h24 s100 d80 dv=48", "plain_d96"},
      {"bf16 b1 h24 s100 d8 dv=200", "plain_d256"},
      {"bf16 b2 h24 s4608 d128 kvlen=4608,3301", "plain_d128"},
      {"bf16 h8 b1 hk=2 s512 d128 mask=causal lse=1", "plain_d128"},
      {"bf16 b1 h8 s512 d128 window=100,20", "plain_d128"},
      {"bf16 b1 h8 s300 d64 layout=packed docs=100:100,200:200", "plain_d64"},
      {"bf16 b1 h8 s512 d128 strides=expanded", "plain_d128"},
      {"bf16 b1 h8 s512 d128 mask=bool", "any_d128"},
      {"f16 b1 h8 s512 d72 mask=bias", "any_d128"},
      {"f16 b1 h8 s512 d64 mask=keys", "any_d64"},
      {"bf16 b1 h8 s512 d33", "any_d64"},
      {"bf16 b1 h8 s512 d64 dv=129", "any_d256"},
      {"f32 b1 h8 s512 d64", "f32_d64"},
      {"f32 b1 h8 s512 d100 mask=causal+bias", "f32_d128"},
      {"f32 b1 h8 s512 d256", "f32_d256"},
  };
  for (const auto& [text, instance] : table) {
    const ExecutionPathResult report = ask(problem(text));
    EXPECT_EQ(report.instance, instance) << text;
    EXPECT_EQ(report.path, "cuda.flash_sm80") << text;
    EXPECT_EQ(report.support, SupportStatus::unmigrated) << text;
  }
}

TEST(FlashSm80Table, RowsThatAreNotAlignedAreReadByTheGeneralInstance) {
  Problem p = problem("bf16 b1 h8 s512 d64");
  p.strides_kind = StridesKind::custom;
  p.k_strides.seq += 1;
  EXPECT_EQ(ask(p).instance, "any_d64");
  p = problem("bf16 b1 h8 s512 d64");
  p.alignment = 2;
  EXPECT_EQ(ask(p).instance, "any_d64");
  p = problem("f32 b1 h8 s512 d64");
  p.alignment = 2;  // no float32 address
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::alignment);
}

TEST(FlashSm80Table, RefusalsNameTheField) {
  Problem p = problem("bf16 b1 h8 s512 d300");
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::head_dim);
  EXPECT_EQ(ask(p).reasons.front().accepted, "1..256");

  p = problem("f32 b1 h8 s512 d64");
  p.mask = {MaskKind::boolean, kI32, false, false, true};
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::mask_dtype);

  p = problem("f32 b1 h8 s512 d64");
  p.seq_kv = int64_t{1} << 30;
  ASSERT_EQ(ask(p).support, SupportStatus::unsupported);
  EXPECT_EQ(ask(p).reasons.front().code, ReasonCode::seq_limit);

  const ExecutionPathResult turing = ask(problem("f16 b1 h8 s512 d64"), "sm=75");
  ASSERT_EQ(turing.support, SupportStatus::unsupported);
  EXPECT_EQ(turing.reasons.front().code, ReasonCode::architecture);
  EXPECT_EQ(turing.reasons.front().accepted, ">= 80");
}

TEST(FlashSm80Table, DevicesWithoutARecordAreUnmigrated) {
  for (const char* facts : {"sm=80", "sm=86", "sm=89", "sm=100", "sm=120"})
    EXPECT_EQ(ask(problem("bf16 b1 h8 s512 d64"), facts).support, SupportStatus::unmigrated)
        << facts;
}

TEST(FlashSm80Table, PlansAreMadeWhereReportsSayTheyCan) {
  const auto backend = make_flash_sm80_backend();
  const Problem p = problem("bf16 b1 h8 s512 d64");
  ExecutionContext context = on("sm=80");
  auto elsewhere = backend->plan(backend::FLASH_ATTN_2, p, nullptr, context);
  ASSERT_FALSE(elsewhere.has_value());
  EXPECT_EQ(elsewhere.error().code, ErrorCode::not_available);
  context.local = true;
  const auto report = backend->resolve(backend::FLASH_ATTN_2, p, nullptr, context);
  const auto plan = backend->plan(backend::FLASH_ATTN_2, p, nullptr, context);
  EXPECT_EQ(plan.has_value(), report.support != SupportStatus::unsupported);
  if (plan) {
    EXPECT_EQ((*plan)->receipt().instance, "plain_d64");
    EXPECT_EQ((*plan)->workspace_bytes(), 0u);
  } else {
    EXPECT_EQ(plan.error().code, ErrorCode::not_built);
  }
}

// The kernels that exist and the rows of the table are the same set.
TEST(FlashSm80Table, EverySizeHasAKernelOfItsPrecisionAndForm) {
  using namespace flash_sm80;
  for (const Precision precision : {Precision::bf16, Precision::f16, Precision::f32})
    for (const Form form : {Form::plain, Form::any}) {
      if (precision == Precision::f32 && form == Form::plain) continue;
      for (int64_t head_dim = 1; head_dim <= 256; ++head_dim)
        for (const int64_t dim_v : {int64_t{1}, head_dim, int64_t{256}}) {
          const Key key = choose(precision, form, head_dim, dim_v);
          EXPECT_EQ(key.precision, precision);
          EXPECT_EQ(key.form, form);
          EXPECT_GE(key.head_dim, std::max(head_dim, dim_v));
        }
    }
}

TEST(FlashDispatch, TakesHopperThenAmpereKernels) {
  const std::tuple<const char*, const char*, const char*> table[] = {
      {"sm=90", "bf16 b1 h8 s512 d128", "cuda.flash_sm90"},
      {"sm=90", "bf16 b1 h8 s512 d128 mask=bool", "cuda.flash_sm80"},
      {"sm=90", "bf16 b1 h8 s512 d128 mask=bias", "cuda.flash_sm80"},
      {"sm=90", "bf16 b1 h8 s512 d33", "cuda.flash_sm80"},
      {"sm=90", "f32 b1 h8 s512 d128", "cuda.flash_sm80"},
      {"sm=80", "bf16 b1 h8 s512 d128", "cuda.flash_sm80"},
      {"sm=89", "f16 b1 h8 s512 d64", "cuda.flash_sm80"},
  };
  for (const auto& [facts, text, path] : table)
    EXPECT_EQ(
        make_flash_backend()->resolve(backend::FLASH_ATTN, problem(text), nullptr, on(facts)).path,
        path)
        << facts << ' ' << text;
}

// A problem that no family takes is refused with what the widest of them accepts.
TEST(FlashDispatch, RefusesWithTheReasonsOfTheWidestFamily) {
  const auto report = make_flash_backend()->resolve(
      backend::FLASH_ATTN, problem("bf16 b1 h8 s512 d300"), nullptr, on("sm=90"));
  ASSERT_EQ(report.support, SupportStatus::unsupported);
  EXPECT_EQ(report.reasons.front().accepted, "1..256");
}

TEST(FlashDispatch, ReceiptsSayWhyTheHopperKernelDidNotRun) {
  ExecutionContext context = on("sm=90");
  context.local = true;
  const auto flash = make_flash_backend();
  const auto plan =
      flash->plan(backend::FLASH_ATTN, problem("bf16 b1 h8 s512 d128 mask=bias"), nullptr, context);
  if (!plan) {  // a build without CUDA
    EXPECT_EQ(plan.error().code, ErrorCode::not_built);
    return;
  }
  EXPECT_EQ((*plan)->receipt().path, "cuda.flash_sm80");
  ASSERT_FALSE((*plan)->receipt().dispatch.empty());
  EXPECT_EQ((*plan)->receipt().dispatch.front().code, ReasonCode::mask);
  EXPECT_FALSE((*plan)->receipt().fallback.has_value());
  // On another generation the Hopper kernel is no candidate.
  context.facts = on("sm=80").facts;
  const auto ampere =
      flash->plan(backend::FLASH_ATTN, problem("bf16 b1 h8 s512 d128"), nullptr, context);
  ASSERT_TRUE(ampere.has_value());
  EXPECT_TRUE((*ampere)->receipt().dispatch.empty());
}

}  // namespace
}  // namespace fovea::backends
