#include "fovea/execution.hpp"

#include <gtest/gtest.h>

namespace fovea {
namespace {

ExecutionPathResult report(SupportStatus support, CompilationMode mode) {
  ExecutionPathResult result;
  result.path = "cpu.avx2";
  result.support = support;
  result.compilation_mode = mode;
  if (support == SupportStatus::unsupported)
    result.reasons = {{ReasonCode::head_dim, "head_dim", "80", "64"}};
  return result;
}

TEST(Execution, names_are_those_of_the_contract) {
  EXPECT_EQ("supported", name(SupportStatus::supported));
  EXPECT_EQ("unsupported", name(SupportStatus::unsupported));
  EXPECT_EQ("unmigrated", name(SupportStatus::unmigrated));
  EXPECT_EQ("traceable", name(CompilationMode::traceable));
  EXPECT_EQ("custom_op", name(CompilationMode::custom_op));
  EXPECT_EQ("eager_only", name(CompilationMode::eager_only));
  EXPECT_EQ("multi_document", name(PackingMode::multi_document));
  EXPECT_EQ("packed_padding", name(PackingMode::packed_padding));
  EXPECT_EQ("arbitrary", name(MaskMode::arbitrary));
  EXPECT_EQ("hybrid_ulysses_ring", name(ParallelStrategy::hybrid_ulysses_ring));
  EXPECT_EQ("allgather_kv", name(ParallelStrategy::allgather_kv));
  EXPECT_EQ("hsdp", name(OuterBoundary::hsdp));
  EXPECT_EQ("attention_schedule", name(OuterBoundary::attention_schedule));
}

TEST(Execution, without_a_full_graph_the_report_stands) {
  for (SupportStatus support :
       {SupportStatus::supported, SupportStatus::unsupported, SupportStatus::unmigrated}) {
    const ExecutionPathResult r = report(support, CompilationMode::eager_only);
    const CapabilityResult answer = requested_support(r, false);
    EXPECT_EQ(support, answer.status);
    EXPECT_EQ(r.reasons, answer.reasons);
  }
}

TEST(Execution, a_full_graph_needs_a_verified_path_outside_eager_mode) {
  for (CompilationMode mode : {CompilationMode::traceable, CompilationMode::custom_op})
    EXPECT_EQ(SupportStatus::supported,
              requested_support(report(SupportStatus::supported, mode), true).status);
  for (const ExecutionPathResult& r :
       {report(SupportStatus::supported, CompilationMode::eager_only),
        report(SupportStatus::unmigrated, CompilationMode::traceable)}) {
    const CapabilityResult answer = requested_support(r, true);
    EXPECT_EQ(SupportStatus::unsupported, answer.status);
    ASSERT_EQ(1u, answer.reasons.size());
    EXPECT_EQ(ReasonCode::compilation, answer.reasons[0].code);
  }
}

TEST(Execution, a_refused_path_keeps_its_own_reasons_under_a_full_graph) {
  const ExecutionPathResult r = report(SupportStatus::unsupported, CompilationMode::eager_only);
  const CapabilityResult answer = requested_support(r, true);
  EXPECT_EQ(SupportStatus::unsupported, answer.status);
  EXPECT_EQ(r.reasons, answer.reasons);
}

}  // namespace
}  // namespace fovea
