#include "src/backends/cudnn/backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace fovea::backends {
namespace {

ExecutionContext there(const std::string& facts) {
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, facts);
  context.local = false;
  return context;
}

ExecutionPathResult judge(const std::string& problem, const std::string& facts) {
  return make_cudnn_backend()->resolve(backend::CUDNN_ATTN, *parse_problem(problem), nullptr,
                                       there(facts));
}

constexpr const char* kH200 = "sm=90,cudnn=9.19";

TEST(CudnnBackend, AnswersForAnotherMachineWhateverIsBuilt) {
  for (const char* problem : {"bf16 b1 h24 s4608 d128", "f16 b2 h8 s77 d64 hk=2 sk=300 lse=1",
                              "bf16 b1 h2 s64 d256", "bf16 b1 h4 s100 d128 sk=130 mask=causal",
                              "bf16 b1 h4 s100 d192 dv=128 layout=bhsd strides=bhsd_view"}) {
    const auto report = judge(problem, kH200);
    EXPECT_NE(report.support, SupportStatus::unsupported) << problem << sentence(report.reasons);
    EXPECT_EQ(report.path, "cuda.cudnn");
    EXPECT_EQ(report.provider, "cudnn");
    EXPECT_GT(report.workspace_bytes, 0u);
    const auto plan = make_cudnn_backend()->plan(backend::CUDNN_ATTN, *parse_problem(problem),
                                                 nullptr, there(kH200));
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code, ErrorCode::not_available);
  }
}

struct Refused {
  const char* problem;
  const char* facts;
  ReasonCode code;
  const char* text;
};

TEST(CudnnBackend, RefusesByField) {
  const Refused table[] = {
      {"f32 b1 h2 s64 d64", kH200, ReasonCode::dtype, "dtype f32"},
      {"bf16 b1 h2 s64 d60", kH200, ReasonCode::head_dim, "head_dim 60"},
      {"bf16 b1 h2 s64 d264", kH200, ReasonCode::head_dim, "multiples of 8"},
      {"bf16 b1 h2 s64 d64 dv=512", kH200, ReasonCode::dim_v, "dim_v 512"},
      {"bf16 b1 h2 s64 d64 out=f32", kH200, ReasonCode::output_dtype, "f32"},
      {"bf16 b1 h2 s64 d64 mask=keys", kH200, ReasonCode::mask, "mask keys"},
      {"bf16 b1 h2 s64 d64 window=8,8", kH200, ReasonCode::window, "window 8,8"},
      {"bf16 b1 h2 s64 d64 layout=packed docs=30:30,34:34", kH200, ReasonCode::packed, "packed"},
      {"bf16 b2 h2 s64 d64 strides=expanded", kH200, ReasonCode::strides, "nonzero"},
      {"bf16 b1 h2 s64 d64 align=8", kH200, ReasonCode::alignment, "16 bytes"},
      {"bf16 b1 h2 s64 d64 sk=0", kH200, ReasonCode::seq_limit, "seq_kv 0"},
      {"bf16 b1 h2 s64 d64 sk=50 mask=causal", kH200, ReasonCode::seq_limit,
       "seq_q with causal 64"},
      {"bf16 b2 h2 s64 d64 kvlen=?", kH200, ReasonCode::kv_lengths, "key lengths"},
      {"bf16 b1 h2 s64 d64", "sm=75,cudnn=9.19", ReasonCode::architecture, "80"},
      {"bf16 b1 h2 s64 d64", "sm=90", ReasonCode::package, "pip install nvidia-cudnn"},
      {"bf16 b1 h2 s64 d64", "sm=90,cudnn=8.9.7", ReasonCode::version, "8.9.7"},
      {"bf16 b1 h2 s64 d64", "sm=90,cudnn=9.10.1", ReasonCode::known_fault, "faulty"},
      {"bf16 b1 h2 s65 d64 mask=causal", "sm=90,cudnn=9.5", ReasonCode::version, "9.6"},
      {"bf16 b1 h2 s64 d256", "sm=80,cudnn=9.9", ReasonCode::version, "sm_8x"},
  };
  for (const Refused& row : table) {
    SCOPED_TRACE(std::string(row.problem) + " on " + row.facts);
    const auto report = judge(row.problem, row.facts);
    EXPECT_EQ(report.support, SupportStatus::unsupported);
    EXPECT_TRUE(std::any_of(report.reasons.begin(), report.reasons.end(),
                            [&](const Reason& reason) { return reason.code == row.code; }))
        << sentence(report.reasons);
    EXPECT_NE(sentence(report.reasons).find(row.text), std::string::npos)
        << sentence(report.reasons);
  }
  EXPECT_NE(judge("bf16 b1 h2 s64 d64", "sm=90,cudnn=9.10.2").support, SupportStatus::unsupported);
}

TEST(CudnnBackend, KeyLengthsRunOnCopiesThatTheEntryAllows) {
  AttentionSpec spec;
  spec.backend = backend::CUDNN_ATTN;
  const auto ask = [&](const char* problem) {
    return make_cudnn_backend()->resolve(backend::CUDNN_ATTN, *parse_problem(problem), &spec,
                                         there(kH200));
  };
  constexpr const char* kPadded = "bf16 b2 h4 s300 d128 hk=2 sk=200 dv=64 kvlen=200,77 lse=1";
  const auto refused = ask(kPadded);
  EXPECT_EQ(refused.support, SupportStatus::unsupported);
  EXPECT_NE(sentence(refused.reasons).find("allow_copy"), std::string::npos)
      << sentence(refused.reasons);
  spec.allow_copy = true;
  const auto report = ask(kPadded);
  EXPECT_NE(report.support, SupportStatus::unsupported) << sentence(report.reasons);
  EXPECT_EQ(report.instance, "sdpa.padded");
  // The copies, at least: 2 items of 200 keys, 2 heads of 128 and 64 elements of 2 bytes.
  EXPECT_GE(report.workspace_bytes,
            ask("bf16 b2 h4 s300 d128 hk=2 sk=200 dv=64").workspace_bytes + 2 * 200 * 2 * 192 * 2);
  EXPECT_EQ(ask("bf16 b2 h4 s300 d128 mask=causal kvlen=200,77").support,
            SupportStatus::unsupported);
}

}  // namespace
}  // namespace fovea::backends
