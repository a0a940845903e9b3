// FLASH_ATTN as one opaque operation: its shape function, full-graph requests, and recorded calls
// that are replayed, against the float64 oracle. Sizes are samples; they define no support.
#include <gtest/gtest.h>

#include <cmath>

#include "fovea/fovea.hpp"
#include "src/backends/reference/agreement.hpp"
#include "src/core/random_inputs.hpp"
#include "tests/contract/count_new.hpp"

namespace fovea {
namespace {

// The mission's bound for bfloat16.
constexpr double kOuterBound = 1e-2;

Problem problem(std::string_view text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << text << (parsed ? "" : parsed.error().message);
  return parsed.value_or(Problem());
}

Attention flash_layer() {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  auto layer = Attention::create({}, config);
  EXPECT_TRUE(layer.has_value());
  return *std::move(layer);
}

struct Dims {
  int64_t head_dim, dim_v;
};
constexpr Dims kDims[] = {{32, 32}, {64, 64}, {80, 48}, {192, 128}, {256, 256}};

std::string text_of(const Dims& dims, int64_t batch, int64_t seq_q, int64_t seq_kv,
                    const std::string& rest = {}) {
  return "bf16 b" + std::to_string(batch) + " h2 s" + std::to_string(seq_q) + " d" +
         std::to_string(dims.head_dim) + " sk=" + std::to_string(seq_kv) +
         " dv=" + std::to_string(dims.dim_v) + rest;
}

// The shape function: q's batch, length and heads, v's head size, contiguous for any strides of q.
TEST(FlashAttnCompile, BugRow47_output_shape_follows_q_and_v) {
  for (const Dims& dims : kDims)
    for (const char* strides : {"", " strides=bhsd_view", " strides=expanded"}) {
      const Problem p = problem(text_of(dims, 2, 48, 31, strides));
      const auto specs = output_spec(p);
      ASSERT_TRUE(specs.has_value());
      EXPECT_EQ(specs->out.shape, (std::vector<int64_t>{2, 48, 2, dims.dim_v}));
      EXPECT_EQ(specs->out.strides,
                (std::vector<int64_t>{96 * dims.dim_v, 2 * dims.dim_v, dims.dim_v, 1}));
      EXPECT_EQ(specs->out.dtype, kBF16);
    }
}

TEST(FlashAttnCompile, a_full_graph_of_the_cpu_path_is_supported) {
  const Attention layer = flash_layer();
  for (const Dims& dims : kDims) {
    ExecutionContext context;
    context.require_fullgraph = true;
    const ExecutionPathResult report =
        layer.resolve_execution_path(problem(text_of(dims, 1, 64, 64)), context);
    EXPECT_EQ(report.compilation_mode, CompilationMode::custom_op);
    EXPECT_EQ(requested_support(report, context.require_fullgraph).status,
              SupportStatus::supported);
  }
}

// Recorded once, replayed with other values, compared with the oracle each time.
TEST(FlashAttnCompile, recorded_calls_agree_with_the_oracle) {
  const Attention layer = flash_layer();
  for (const Dims& dims : kDims)
    for (int64_t batch : {1, 2})
      for (const auto& [seq_q, seq_kv] :
           {std::pair<int64_t, int64_t>{17, 17}, {64, 300}, {256, 96}}) {
        Problem p = problem(text_of(dims, batch, seq_q, seq_kv, " lse=1"));
        const auto recorded = layer.record(p);
        ASSERT_TRUE(recorded.has_value()) << recorded.error().message;
        for (uint64_t seed : {1u, 2u}) {
          p.seed = seed;
          auto inputs = make_random_inputs(p);
          ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
          const uint64_t before = inputs->input_hash();
          const int64_t allocations = contract::allocations();
          const Status status = recorded->run(inputs->tensors());
          EXPECT_EQ(contract::allocations(), allocations) << "a replay allocates nothing";
          ASSERT_TRUE(status.has_value()) << status.error().message;
          EXPECT_EQ(inputs->input_hash(), before) << "an input was written";
          const auto oracle =
              backends::reference::compute_oracle(p, inputs->tensors(), serial_executor());
          ASSERT_TRUE(oracle.has_value());
          const auto agreement = backends::reference::compare_to_oracle(p, inputs->tensors(),
                                                                        *oracle, DataKind::random);
          EXPECT_TRUE(agreement.pass) << to_string(p) << ": " << agreement.out.rel_l2;
          EXPECT_LE(agreement.out.rel_l2, kOuterBound);
          EXPECT_EQ(agreement.out.nonfinite_mismatches, 0);
        }
      }
}

TEST(FlashAttnCompile, up_to_a_thousand_tokens) {
  const Attention layer = flash_layer();
  Problem p = problem("bf16 b1 h1 s1024 d64 lse=1");
  const auto recorded = layer.record(p);
  ASSERT_TRUE(recorded.has_value());
  auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  ASSERT_TRUE(recorded->run(inputs->tensors()).has_value());
  const auto oracle = backends::reference::compute_oracle(p, inputs->tensors(), serial_executor());
  ASSERT_TRUE(oracle.has_value());
  EXPECT_TRUE(
      backends::reference::compare_to_oracle(p, inputs->tensors(), *oracle, DataKind::random).pass);
}

// Sizes that the kernel refuses are refused at every stage with the kernel's own limits.
TEST(FlashAttnCompile, sizes_beyond_the_kernel_are_refused_before_anything_runs) {
  const Attention layer = flash_layer();
  const Problem p = problem("bf16 b1 h2 s8 d600");
  const ExecutionPathResult report = layer.resolve_execution_path(p, {});
  EXPECT_EQ(report.support, SupportStatus::unsupported);
  const auto recorded = layer.record(p);
  ASSERT_FALSE(recorded.has_value());
  EXPECT_EQ(recorded.error().reasons, report.reasons);
  EXPECT_EQ(report.reasons[0].code, ReasonCode::head_dim);
  EXPECT_EQ(report.reasons[0].accepted, "1..512");
}

// Lengths of packed padding are values of a call, not of its plan: one executable serves them all.
TEST(FlashAttnCompile, one_plan_serves_every_length_of_packed_padding) {
  const Attention layer = flash_layer();
  const Problem p = problem("f32 b1 h2 s64 d32");
  AttentionMetadata metadata;
  metadata.packed_padding = PackedPadding{10, 10};
  const auto first = layer.plan(p, {}, metadata);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  for (int64_t length : {0, 1, 33, 64}) {
    metadata.packed_padding = PackedPadding{length, length};
    const auto next = layer.plan(p, {}, metadata);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->get(), first->get()) << length;
  }
}

}  // namespace
}  // namespace fovea
