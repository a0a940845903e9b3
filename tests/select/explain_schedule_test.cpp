#include <gtest/gtest.h>

#include "fovea/explain.hpp"
#include "fovea/log.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;
using test::Registered;

class ExplainScheduleTest : public ::testing::Test {
 protected:
  ExplainScheduleTest() {
    platform->order = {backend::FLASH_ATTN};
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) warnings.emplace_back(line);
    });
  }
  ~ExplainScheduleTest() override { set_log_sink({}); }

  Explanation explained(const AttentionConfig& config, const char* schedule,
                        std::vector<ExplainQuery> queries, std::vector<RunLength> lengths) {
    std::optional<AttentionSchedule> parsed;
    if (schedule != nullptr) parsed = *parse_schedule(schedule);
    auto out =
        explain_schedule(config, parsed ? &*parsed : nullptr, platform, queries, lengths, {});
    EXPECT_TRUE(out) << out.error().message;
    Explanation none;
    return out ? *out : none;
  }
  // "layers/steps backend" of every entry.
  static std::vector<std::string> picture(const Explanation& e) {
    std::vector<std::string> out;
    for (const ExplainEntry& entry : e.entries)
      out.push_back(entry.layers + "/" + entry.steps + " " + name(entry.report.backend));
    return out;
  }
  static ExplainQuery query(std::string role = "self") {
    ExplainQuery q;
    q.role = std::move(role);
    q.problem = test::problem_with(64);
    return q;
  }

  std::vector<std::string> warnings;
  std::shared_ptr<FakePlatform> platform = std::make_shared<FakePlatform>();
  Registered flash{backend::FLASH_ATTN, std::make_shared<FakeBackend>("test:flash")};
  Registered sdpa{backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:sdpa")};
  Registered radial{backend::RADIAL_ATTN, std::make_shared<FakeBackend>("test:radial")};
};

TEST_F(ExplainScheduleTest, EveryAreaHasItsDecision) {
  const AttentionConfig config = *parse_config(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 2, "dense_layers": 1, "dense_backend": "TORCH_SDPA"}}})");
  const Explanation e = explained(config, R"({"profiles": {"last": "FLASH_ATTN"},
      "steps": [{"start": 5, "end": null, "profile": "last"}]})",
                                  {query()}, {{6, 4, {}}});
  const std::vector<std::string> expected = {"0-3/0-1 TORCH_SDPA", "0/2-4 TORCH_SDPA",
                                             "1-3/2-4 RADIAL_ATTN", "0-3/5 FLASH_ATTN"};
  EXPECT_EQ(picture(e), expected);
  EXPECT_EQ(e.entries[0].dense, DenseCause::first_steps);
  EXPECT_EQ(e.entries[0].report.density, 1.0);
  EXPECT_EQ(e.entries[0].source, "attention_config.default");
  EXPECT_EQ(e.entries[0].spec->backend, backend::RADIAL_ATTN);
  EXPECT_EQ(e.entries[1].dense, DenseCause::first_layers);
  EXPECT_FALSE(e.entries[2].dense.has_value());
  EXPECT_EQ(e.entries[3].profile, "last");
  EXPECT_EQ(e.entries[3].source, "profile 'last': attention_config.default");
  ASSERT_TRUE(e.entries[2].sparse.has_value());
  EXPECT_EQ(e.entries[2].sparse->on, 9);
  EXPECT_EQ(e.entries[2].sparse->of, 24);
  EXPECT_FALSE(e.refused);
}

TEST_F(ExplainScheduleTest, NothingSparseIsOneArea) {
  const Explanation e = explained({}, nullptr, {query()}, {{40, 30, {}}});
  EXPECT_EQ(picture(e), std::vector<std::string>{"0-29/0-39 FLASH_ATTN"});
  EXPECT_FALSE(e.entries[0].sparse.has_value());
  EXPECT_EQ(e.entries[0].source, "platform default");
}

TEST_F(ExplainScheduleTest, NeverSparseIsRefusedUnderRequire) {
  const AttentionConfig config = *parse_config(
      R"({"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 40}}})");
  const Explanation e = explained(config, nullptr, {query()}, {{40, 2, {}}});
  EXPECT_TRUE(e.refused);
  ASSERT_EQ(e.entries.size(), 1u);
  EXPECT_EQ(e.entries[0].report.support, SupportStatus::unsupported);
  EXPECT_EQ(e.entries[0].report.backend, backend::RADIAL_ATTN);
  ASSERT_EQ(e.entries[0].report.reasons.size(), 1u);
  EXPECT_EQ(e.entries[0].report.reasons[0].code, ReasonCode::schedule);
  EXPECT_EQ(e.entries[0].report.reasons[0].got, "0 of 40 steps x 2 layers");
  EXPECT_EQ(e.entries[0].sparse->on, 0);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(ExplainScheduleTest, NeverSparseIsWarnedOfOnceUnderPrefer) {
  const AttentionConfig config = *parse_config(R"({"default": {"backend": "RADIAL_ATTN",
      "strictness": "prefer", "radial": {"dense_timesteps": 40}}})");
  const Explanation e =
      explained(config, nullptr, {query("a"), query("b")}, {{40, 2, {}}, {40, 2, {}}});
  EXPECT_FALSE(e.refused);
  EXPECT_EQ(e.entries[0].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(e.entries[0].sparse->on, 0);
  EXPECT_EQ(e.entries[0].sparse->of, 80);
  ASSERT_EQ(e.warnings.size(), 1u);
  EXPECT_NE(e.warnings[0].find("RADIAL_ATTN would run dense"), std::string::npos);
  EXPECT_EQ(warnings, e.warnings);
}

TEST_F(ExplainScheduleTest, TheDensityOfAVideoIsKnownBeforehand) {
  const AttentionConfig config =
      *parse_config(R"({"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 0}}})");
  ExplainQuery q = query();
  q.problem->seq_q = q.problem->seq_kv = 3840;
  fill_strides(*q.problem);
  q.video = {16, 240};
  const Explanation e = explained(config, nullptr, {q}, {{1, 1, {}}});
  ASSERT_TRUE(e.entries[0].report.density.has_value());
  EXPECT_GT(*e.entries[0].report.density, 0.05);
  EXPECT_LT(*e.entries[0].report.density, 0.95);
}

TEST_F(ExplainScheduleTest, SigmasChooseTheWindow) {
  const AttentionConfig config = *parse_config(R"({"default": "FLASH_ATTN"})");
  const Explanation e = explained(config, R"({"profiles": {"low": "TORCH_SDPA"},
      "sigma": [{"low": 0, "high": 0.5, "profile": "low"}]})",
                                  {query()}, {{3, 1, {1.0, 0.5, 0.2}}});
  const std::vector<std::string> expected = {"0/0-1 FLASH_ATTN", "0/2 TORCH_SDPA"};
  EXPECT_EQ(picture(e), expected);
}

// The timesteps settle whether tiles are skipped, an entry for every stretch of steps.
TEST_F(ExplainScheduleTest, TheGateOfSkipSoftmaxCutsTheRun) {
  const AttentionConfig config = *parse_config(R"({"default": {"backend": "FLASH_ATTN",
      "skip_softmax": {"threshold": 0.5, "disabled_until_timestep": 0.86}}})");
  Explanation e = explained(config, nullptr, {query()}, {{5, 2, {1.0, 0.9, 0.86, 0.5, 0.0}}});
  std::vector<std::string> expected = {"0-1/0-1 FLASH_ATTN", "0-1/2-4 FLASH_ATTN"};
  EXPECT_EQ(picture(e), expected);
  EXPECT_EQ(e.entries[0].skip->state, SkipState::gated);
  EXPECT_EQ(e.entries[1].skip->state, SkipState::skips);
  EXPECT_EQ(e.entries[1].skip->threshold, 0.5);
  // A schedule cuts it too, and its own profile decides.
  e = explained(config, R"({"profiles": {"late": "TORCH_SDPA"},
      "steps": [{"start": 3, "end": 4, "profile": "late"}]})",
                {query()}, {{5, 1, {1.0, 0.9, 0.86, 0.5, 0.9}}});
  expected = {"0/0-1 FLASH_ATTN", "0/2 FLASH_ATTN", "0/3 TORCH_SDPA", "0/4 FLASH_ATTN"};
  EXPECT_EQ(picture(e), expected);
  EXPECT_FALSE(e.entries[2].skip);
  EXPECT_EQ(e.entries[3].skip->state, SkipState::gated);
  // Without timesteps nobody knows.
  e = explained(config, nullptr, {query()}, {{5, 1, {}}});
  ASSERT_EQ(e.entries.size(), 1U);
  EXPECT_EQ(e.entries[0].skip->state, SkipState::unknown_timestep);
}

// Bug: a dense backend that stands in for a sparse one was given its density and its steps.
TEST_F(ExplainScheduleTest, WhatStandsInForASparseBackendIsDense) {
  const AttentionConfig config = *parse_config(R"({"default": {"backend": "RADIAL_ATTN",
      "strictness": "prefer", "radial": {"dense_timesteps": 1}}})");
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, "sm=80,cuda=13.0");
  context.local = false;
  ExplainQuery asked = query();
  asked.problem = *parse_problem("bf16 b1 h2 s3840 d128");
  asked.video = {16, 240};
  const auto run = [&](const char* facts) {
    context.facts = *parse_facts(PlatformId::cuda, facts);
    return *explain_schedule(config, nullptr, make_platform(context.facts), {asked}, {{4, 2, {}}},
                             context);
  };
  const Explanation dense = run("sm=80,cuda=13.0");
  ASSERT_EQ(dense.entries.size(), 2U);
  EXPECT_EQ(dense.entries[1].report.backend, backend::FLASH_ATTN);
  EXPECT_FALSE(dense.entries[1].report.density);
  ASSERT_TRUE(dense.entries[1].sparse);
  EXPECT_EQ(dense.entries[1].sparse->on, 0);
  const Explanation sparse = run("sm=90,cuda=13.0");
  EXPECT_EQ(sparse.entries.at(1).report.backend, backend::RADIAL_ATTN);
  EXPECT_LT(sparse.entries[1].report.density.value(), 1.0);
  EXPECT_EQ(sparse.entries[1].sparse->on, 6);
}

// Bug: steps before the gate opens were called lossy.
TEST_F(ExplainScheduleTest, GatedStepsAreExact) {
  const AttentionConfig config = *parse_config(R"({"default": {"backend": "TRTLLM_ATTN",
      "skip_softmax": {"threshold": 0.5, "disabled_until_timestep": 0.86}}})");
  ExecutionContext context;
  context.facts = *parse_facts(PlatformId::cuda, "sm=100,cuda=13.0,trtllm=1,flashinfer=0.6.18");
  context.local = false;
  ExplainQuery asked = query();
  asked.problem = *parse_problem("bf16 b1 h2 s256 d128");
  const auto run = [&](std::vector<double> sigmas) {
    return *explain_schedule(config, nullptr, make_platform(context.facts), {asked},
                             {{2, 1, std::move(sigmas)}}, context);
  };
  const Explanation e = run({1.0, 0.5});
  ASSERT_EQ(e.entries.size(), 2U);
  EXPECT_EQ(e.entries[0].report.support, SupportStatus::unmigrated);
  EXPECT_FALSE(e.entries[0].report.lossy);
  EXPECT_TRUE(e.entries[1].report.lossy);
  EXPECT_TRUE(run({}).entries.at(0).report.lossy);
}

TEST_F(ExplainScheduleTest, TimestepsAreCheckedWhereverTheyAreGiven) {
  const auto few = explain_schedule({}, nullptr, platform, {query()}, {{4, 1, {1.0, 0.5}}}, {});
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().message, "schedule: sigma: give the 4 sigmas of the run, found 2");
  const auto large = explain_schedule({}, nullptr, platform, {query()}, {{2, 1, {2.0, 0.5}}}, {});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message, "schedule: sigma[0]: expected a number in [0, 1], found 2");
}

TEST_F(ExplainScheduleTest, WhatCannotBeLaidOutIsAnError) {
  const AttentionConfig layered = *parse_config(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 0, "dense_layers": 2}}})");
  const auto unknown = explain_schedule(layered, nullptr, platform, {query()}, {{4, {}, {}}}, {});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("how many layers"), std::string::npos);
  const auto beyond = *parse_schedule(R"({"profiles": {"a": "FLASH_ATTN"},
      "steps": [{"start": 0, "end": 9, "profile": "a"}]})");
  EXPECT_FALSE(explain_schedule({}, &beyond, platform, {query()}, {{4, 1, {}}}, {}));
  EXPECT_FALSE(explain_schedule({}, nullptr, platform, {query()}, {}, {}));
}

}  // namespace
}  // namespace fovea
