#include <gtest/gtest.h>

#include <thread>

#include "fovea/log.hpp"
#include "fovea/select.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;
using test::problem_with;
using test::Registered;

AttentionSpec spec_for(BackendName backend, Strictness strictness = Strictness::require) {
  AttentionSpec spec;
  spec.backend = backend;
  spec.strictness = strictness;
  return spec;
}

// Three backends: A takes head sizes up to 64, B up to 128, C up to 256.
class SelectorTest : public ::testing::Test {
 protected:
  SelectorTest() {
    platform->order = {kA, kB, kC};
    set_log_level(LogLevel::info);
    set_log_sink([this](LogLevel level, std::string_view line) {
      lines.push_back(std::string(name(level)) + ": " + std::string(line));
    });
  }
  ~SelectorTest() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }

  static RoleQuery role(std::string name, std::string category = {}) {
    return {std::move(name), std::move(category), {}};
  }
  int count_lines(std::string_view part) const {
    return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    }));
  }

  static constexpr BackendName kA = backend::SAGE_ATTN, kB = backend::FLASH_ATTN_2,
                               kC = backend::TORCH_SDPA;
  std::vector<std::string> lines;
  std::shared_ptr<FakePlatform> platform = std::make_shared<FakePlatform>();
  Registered a{kA, std::make_shared<FakeBackend>("test:a", 64)};
  Registered b{kB, std::make_shared<FakeBackend>("test:b", 128)};
  Registered c{kC, std::make_shared<FakeBackend>("test:c", 256)};
  ExecutionContext context;
};

TEST_F(SelectorTest, ExactRoleBeatsCategoryBeatsDefaultBeatsPlatform) {
  AttentionConfig config;
  config.per_role["cross.text"] = spec_for(kC);
  config.per_role["cross"] = spec_for(kB);
  config.default_spec = spec_for(kA);
  const Selector selector(platform, config);
  const auto chosen = [&](const RoleQuery& q) {
    return selector.decide(q, problem_with(64), context);
  };
  EXPECT_EQ(chosen(role("cross.text", "cross"))->backend, kC);
  EXPECT_EQ(chosen(role("cross.text", "cross"))->source, "attention_config.per_role['cross.text']");
  EXPECT_EQ(chosen(role("cross.image", "cross"))->backend, kB);
  EXPECT_EQ(chosen(role("cross.image", "cross"))->source,
            "attention_config.per_role['cross'] (role_category fallback)");
  EXPECT_EQ(chosen(role("self"))->backend, kA);
  EXPECT_EQ(chosen(role("self"))->source, "attention_config.default");
  EXPECT_NE(chosen(role("self"))->spec, nullptr);
  const AttentionConfig empty;
  const Selector automatic(platform, empty);
  const auto decision = automatic.decide(role("self"), problem_with(64), context);
  EXPECT_EQ(decision->source, "platform default");
  EXPECT_EQ(decision->spec, nullptr);
}

TEST_F(SelectorTest, AutomaticChoiceTakesTheFirstThatCanRunAndKeepsTheTrail) {
  const AttentionConfig config;
  const Selector selector(platform, config);
  const auto decision = selector.decide(role("self"), problem_with(128), context);
  EXPECT_EQ(decision->backend, kB);
  EXPECT_FALSE(decision->fallback.has_value());
  ASSERT_EQ(decision->trail.size(), 3u);
  EXPECT_EQ(decision->trail[0].verdict, TrailVerdict::rejected);
  EXPECT_EQ(decision->trail[0].reasons[0].code, ReasonCode::head_dim);
  EXPECT_EQ(decision->trail[1].verdict, TrailVerdict::selected);
  EXPECT_EQ(decision->trail[2].verdict, TrailVerdict::not_tried);
  EXPECT_TRUE(decision->trail[2].reasons.empty());
}

TEST_F(SelectorTest, RequireRunsOrRefuses) {
  AttentionConfig config;
  config.default_spec = spec_for(kA);
  const Selector selector(platform, config);
  const auto decision = selector.decide(role("self"), problem_with(128), context);
  EXPECT_EQ(decision->report.support, SupportStatus::unsupported);
  EXPECT_EQ(decision->trail.size(), 1u);
  ASSERT_TRUE(decision->nearest.has_value());
  EXPECT_EQ(*decision->nearest, kB);
  EXPECT_EQ(b->plans, 0);
}

TEST_F(SelectorTest, PreferFallsThroughOnceLoudly) {
  AttentionConfig config;
  config.default_spec = spec_for(kA, Strictness::prefer);
  const Selector selector(platform, config);
  for (int64_t call = 0; call < 100; ++call) {
    const auto decision = selector.decide(role("self"), problem_with(65 + call % 2), context);
    EXPECT_EQ(decision->backend, kB);
    ASSERT_TRUE(decision->fallback.has_value());
    EXPECT_EQ(decision->fallback->from, kA);
    EXPECT_EQ(decision->fallback->reasons[0].code, ReasonCode::head_dim);
  }
  EXPECT_LE(count_lines("warning: SAGE_ATTN was preferred"), 2) << "once per distinct reason";
  EXPECT_GE(count_lines("warning: SAGE_ATTN was preferred"), 1);
}

TEST_F(SelectorTest, AnUnmigratedCandidateIsNotPassedOver) {
  const Registered first(backend::CUDNN_ATTN,
                         std::make_shared<FakeBackend>("test:u", 512, SupportStatus::unmigrated));
  platform->order = {backend::CUDNN_ATTN, kC};
  const AttentionConfig config;
  const auto decision = Selector(platform, config).decide(role("self"), problem_with(64), context);
  EXPECT_EQ(decision->backend, backend::CUDNN_ATTN);
  EXPECT_EQ(decision->report.support, SupportStatus::unmigrated);
}

TEST_F(SelectorTest, APolicyRefusalNeverReachesTheBackend) {
  platform->refusals[kA] = {{ReasonCode::architecture, "sm", "75", "80 or newer", {}}};
  AttentionConfig config;
  config.default_spec = spec_for(kA);
  const auto decision = Selector(platform, config).decide(role("self"), problem_with(64), context);
  EXPECT_EQ(decision->report.support, SupportStatus::unsupported);
  EXPECT_EQ(decision->report.reasons[0].code, ReasonCode::architecture);
  EXPECT_EQ(a->resolves, 0);
}

TEST_F(SelectorTest, TheProviderOfASpecIsKept) {
  AttentionConfig config;
  config.default_spec = spec_for(kA);
  config.default_spec->provider = "package";
  const auto decision = Selector(platform, config).decide(role("self"), problem_with(64), context);
  EXPECT_EQ(decision->report.support, SupportStatus::unsupported);
  EXPECT_EQ(decision->report.reasons[0].code, ReasonCode::provider);
}

TEST_F(SelectorTest, APackageAnswersForADescribedDevice) {
  platform->order = {backend::TRTLLM_ATTN};
  platform->providers[backend::TRTLLM_ATTN] = "package trtllm 1.2";
  const AttentionConfig config;
  const Problem half = *parse_problem("bf16 b1 h1 s1 d64");
  context.local = false;
  const auto described = Selector(platform, config).decide(role("self"), half, context);
  EXPECT_EQ(described->backend, backend::TRTLLM_ATTN);
  EXPECT_EQ(described->report.support, SupportStatus::unmigrated);
  EXPECT_EQ(described->report.path, "package.trtllm");
  context.local = true;
  const auto here = Selector(platform, config).decide(role("self"), half, context);
  EXPECT_EQ(here->report.support, SupportStatus::unsupported);
}

TEST_F(SelectorTest, AFactorySpecWithoutStateRunsItsDenseBackend) {
  const Registered sparse(backend::RADIAL_ATTN, std::make_shared<FakeBackend>("test:radial"));
  AttentionConfig config;
  config.default_spec = spec_for(backend::RADIAL_ATTN, Strictness::prefer);
  config.default_spec->from_factory = true;
  config.default_spec->radial.emplace().dense_backend = kC;
  const Selector selector(platform, config);
  const auto dense = selector.decide(role("self"), problem_with(64), context);
  EXPECT_EQ(dense->backend, kC);
  EXPECT_EQ(dense->fallback->from, backend::RADIAL_ATTN);
  EXPECT_EQ(count_lines("Sparse attention requires sparse_state, falling back to TORCH_SDPA"), 1);
  ExecutionContext with_state = context;
  with_state.sparse_state = true;
  EXPECT_EQ(selector.decide(role("self"), problem_with(64), with_state)->backend,
            backend::RADIAL_ATTN);
}

TEST_F(SelectorTest, OnePolicyCallPerKeyAndOneDecisionPerProblem) {
  AttentionConfig config;
  config.default_spec = spec_for(kC);
  const Selector selector(platform, config);
  for (int i = 0; i < 10; ++i) (void)selector.decide(role("self"), problem_with(64), context);
  EXPECT_EQ(platform->calls, 1);
  EXPECT_EQ(c->resolves, 1);
  (void)selector.decide(role("cross"), problem_with(64), context);
  EXPECT_EQ(platform->calls, 1) << "the policy reads no role";
  RoleQuery mask_free = role("self");
  mask_free.policy.mask_free = true;
  (void)selector.decide(mask_free, problem_with(64), context);
  EXPECT_EQ(platform->calls, 2);
  EXPECT_TRUE(platform->last_query.mask_free);
}

TEST_F(SelectorTest, OneLogLinePerRoleCategoryBackendAndSource) {
  const AttentionConfig config;
  const Selector selector(platform, config);
  for (int64_t head_dim : {8, 16, 64})
    (void)selector.decide(role("self"), problem_with(head_dim), context);
  EXPECT_EQ(
      count_lines("info: Resolved attention backend SAGE_ATTN for role=self via platform default"),
      1);
  (void)selector.decide(role("self", "video"), problem_with(8), context);
  EXPECT_EQ(count_lines("role=self (category=video)"), 1);
}

TEST_F(SelectorTest, RegistrationInvalidatesDecisions) {
  const AttentionConfig config;
  const Selector selector(platform, config);
  EXPECT_EQ(selector.decide(role("self"), problem_with(64), context)->report.path, "test:a");
  const Registered replaced(kA, std::make_shared<FakeBackend>("test:a2", 64));
  EXPECT_EQ(selector.decide(role("self"), problem_with(64), context)->report.path, "test:a2");
}

TEST_F(SelectorTest, BugRow55_TwoModelsInOneProcessNeverSeeEachOther) {
  AttentionConfig one, two;
  one.default_spec = spec_for(kA);
  two.default_spec = spec_for(kC);
  const Selector first(platform, one), second(platform, two);
  std::thread other([&] {
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(second.decide(role("self"), problem_with(8), context)->backend, kC);
  });
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(first.decide(role("self"), problem_with(8), context)->backend, kA);
  other.join();
}

TEST_F(SelectorTest, BugRow56_PreferWarnsOnceAndRequireRefuses) {
  AttentionConfig config;
  config.per_role["self"] = spec_for(kB, Strictness::prefer);
  config.per_role["cross"] = spec_for(kB);
  const Selector selector(platform, config);
  for (int call = 0; call < 100; ++call)
    EXPECT_EQ(selector.decide(role("self"), problem_with(160), context)->backend, kC);
  EXPECT_EQ(count_lines("warning: FLASH_ATTN_2 was preferred"), 1);
  const auto refused = selector.decide(role("cross"), problem_with(160), context);
  EXPECT_EQ(refused->report.support, SupportStatus::unsupported);
  EXPECT_EQ(refused->report.reasons[0].got, "160");
}

TEST_F(SelectorTest, BugRow68_RolesThatAreNotConfiguredAreUnaffected) {
  AttentionConfig config;
  config.per_role["self"] = spec_for(kA);
  const Selector selector(platform, config);
  const auto vae = selector.decide(role("vae"), problem_with(256), context);
  EXPECT_EQ(vae->backend, kC);
  EXPECT_EQ(vae->source, "platform default");
  EXPECT_EQ(count_lines("warning"), 0);
}

TEST_F(SelectorTest, NothingAtAllIsARefusalToo) {
  platform->order = {};
  const AttentionConfig config;
  const auto decision = Selector(platform, config).decide(role("self"), problem_with(8), context);
  EXPECT_EQ(decision->report.support, SupportStatus::unsupported);
  EXPECT_FALSE(decision->report.reasons.empty());
}

// A decision holds for its surroundings only, whichever was asked for last.
TEST_F(SelectorTest, OtherSurroundingsAreDecidedAnew) {
  using Change = void (*)(ExecutionContext&);
  const Change changes[] = {
      [](ExecutionContext& x) { x.local = false; },
      [](ExecutionContext& x) {
        x.device = {DeviceType::cuda, 1};
      },
      [](ExecutionContext& x) { x.executor = &serial_executor(); },
      [](ExecutionContext& x) { x.mask_mode = MaskMode::arbitrary; },
      [](ExecutionContext& x) { x.packing_mode = PackingMode::packed_padding; },
      [](ExecutionContext& x) { x.parallel_strategy = ParallelStrategy::ring; },
      [](ExecutionContext& x) { x.outer_boundaries = {OuterBoundary::hsdp}; },
      [](ExecutionContext& x) { x.piecewise = true; },
      [](ExecutionContext& x) { x.paged_kv = true; },
      [](ExecutionContext& x) { x.kv_cache_dtype = "fp8"; },
      [](ExecutionContext& x) { x.require_fullgraph = true; },
      [](ExecutionContext& x) { x.sparse_state = true; },
      [](ExecutionContext& x) { x.prepared = "q_scale:f32[8]@cpu"; },
      [](ExecutionContext& x) { x.host_documents = true; },
      [](ExecutionContext& x) { x.host_lengths = true; },
      [](ExecutionContext& x) { x.npu_attn_varlen = true; },
      [](ExecutionContext& x) { x.laser_input_scale = 0.5; },
      [](ExecutionContext& x) { x.protected_kv_prefix = 3; },
      [](ExecutionContext& x) { x.video_layout.emplace(); },
      [](ExecutionContext& x) { x.scheduled_dense = kC; }};
  AttentionConfig config;
  config.default_spec = spec_for(kC);
  const Selector selector(platform, config);
  const Problem problem = problem_with(64);
  selector.decide(role("self"), problem, context);
  for (size_t n = 0; n < std::size(changes); ++n) {
    const int before = c->resolves;
    ExecutionContext other = context;
    changes[n](other);
    selector.decide(role("self"), problem, context);
    EXPECT_EQ(c->resolves, before) << n;
    selector.decide(role("self"), problem, other);
    EXPECT_EQ(c->resolves, before + 1) << n;
    selector.decide(role("self"), problem, context);
    selector.decide(role("self"), problem, other);
    EXPECT_EQ(c->resolves, before + 1) << n;
  }
}

}  // namespace
}  // namespace fovea
