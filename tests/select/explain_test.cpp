#include "fovea/explain.hpp"

#include <gtest/gtest.h>

#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;
using test::Registered;

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() { platform->order = {backend::FLASH_ATTN, backend::TORCH_SDPA}; }
  std::shared_ptr<FakePlatform> platform = std::make_shared<FakePlatform>();
  Registered flash{backend::FLASH_ATTN, std::make_shared<FakeBackend>("test:flash", 128)};
  Registered sdpa{backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:sdpa")};
};

TEST_F(ExplainTest, WithoutQueriesItAnswersForTheDefaultAndEveryRole) {
  AttentionConfig config;
  config.per_role["cross"].backend = backend::TORCH_SDPA;
  const Explanation e = explain(config, platform, {}, {});
  ASSERT_EQ(e.entries.size(), 2u);
  EXPECT_EQ(e.entries[0].role, "default");
  EXPECT_EQ(e.entries[0].source, "platform default");
  EXPECT_FALSE(e.entries[0].strictness.has_value());
  EXPECT_EQ(e.entries[0].report.backend, backend::FLASH_ATTN);
  EXPECT_EQ(e.entries[1].role, "cross");
  EXPECT_EQ(e.entries[1].report.backend, backend::TORCH_SDPA);
  EXPECT_EQ(*e.entries[1].strictness, Strictness::require);
  EXPECT_FALSE(e.refused);
}

TEST_F(ExplainTest, ARefusedRequireEntryIsMarked) {
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::FLASH_ATTN;
  ExplainQuery query;
  query.problem = test::problem_with(512);
  const Explanation e = explain(config, platform, {query}, {});
  EXPECT_TRUE(e.refused);
  EXPECT_EQ(e.entries[0].report.support, SupportStatus::unsupported);
  EXPECT_EQ(e.entries[0].trail[0].verdict, TrailVerdict::rejected);
}

TEST_F(ExplainTest, PlansNothing) {
  const AttentionConfig config;
  ExplainQuery query;
  query.problem = test::problem_with(64);
  (void)explain(config, platform, {query}, {});
  EXPECT_EQ(flash->plans, 0);
}

}  // namespace
}  // namespace fovea
