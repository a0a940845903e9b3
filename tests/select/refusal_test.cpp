#include <gtest/gtest.h>

#include "fovea/select.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;
using test::Registered;

TEST(Refusal, SaysWhoWhatAcceptedAndWhatToDo) {
  auto platform = std::make_shared<FakePlatform>();
  platform->order = {backend::FLASH_ATTN, backend::TORCH_SDPA};
  const Registered small(backend::SAGE_ATTN, std::make_shared<FakeBackend>("test:small", 64));
  const Registered flash(backend::FLASH_ATTN, std::make_shared<FakeBackend>("test:flash", 64));
  const Registered large(backend::TORCH_SDPA, std::make_shared<FakeBackend>("test:large", 512));
  AttentionConfig config;
  config.per_role["vae"].backend = backend::SAGE_ATTN;
  const Selector selector(platform, config);
  const RoleQuery query{"vae", "", {}};
  const Problem problem = test::problem_with(512);
  const auto decision = selector.decide(query, problem, {});
  const Error error = refusal(*decision, query, problem);
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message,
            "role 'vae' (attention_config.per_role['vae']): SAGE_ATTN cannot run f32 b1 h1 s1 "
            "d512: head_dim 512 is "
            "not supported (accepted: 1..64). Nearest that can: TORCH_SDPA.");
  ASSERT_EQ(error.reasons.size(), 1u);
  EXPECT_EQ(error.reasons[0].field, "head_dim");
}

TEST(Refusal, TheFirstReasonDecidesTheCode) {
  Decision decision;
  decision.report.support = SupportStatus::unsupported;
  const RoleQuery query;
  decision.report.reasons = {
      {ReasonCode::package, "package", "absent", "flash_attn", "pip install flash-attn"}};
  EXPECT_EQ(refusal(decision, query, {}).code, ErrorCode::not_available);
  EXPECT_NE(refusal(decision, query, {}).message.find("To do: pip install flash-attn."),
            std::string::npos);
  decision.report.reasons = {{ReasonCode::not_built, "path", "x", "y", {}}};
  EXPECT_EQ(refusal(decision, query, {}).code, ErrorCode::not_built);
}

}  // namespace
}  // namespace fovea
