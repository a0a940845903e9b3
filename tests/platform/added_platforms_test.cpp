#include <gtest/gtest.h>

#include "fovea/added_platform.hpp"

namespace fovea {
namespace {

using Key = PlatformDefinition::Key;

// Admits TORCH_SDPA where the device has at least as many cores as asked for.
class Cores final : public Platform {
 public:
  Cores(DeviceFacts facts, int64_t least) : facts_(std::move(facts)), least_(least) {}
  const DeviceFacts& facts() const noexcept override { return facts_; }
  PolicyVerdict judge(BackendName backend, const PolicyQuery&) const override {
    PolicyVerdict verdict{backend, "plugin test", {}, {}};
    const int64_t cores = facts_.integer("cores").value_or(0);
    if (cores < least_)
      verdict.reasons.push_back({ReasonCode::architecture,
                                 "device",
                                 std::to_string(cores) + " cores",
                                 std::to_string(least_),
                                 {}});
    return verdict;
  }
  std::vector<PolicyVerdict> preference(const PolicyQuery& query) const override {
    return {judge(backend::TORCH_SDPA, query)};
  }

 private:
  DeviceFacts facts_;
  int64_t least_;
};

PlatformDefinition definition(std::string name, int64_t least = 4) {
  PlatformDefinition out;
  out.name = std::move(name);
  out.keys = {{"cores", FactKey::Type::integer, true, "number of cores"},
              {"driver", FactKey::Type::version, false, "driver version"}};
  out.make = [least](DeviceFacts facts) {
    return std::make_shared<const Cores>(std::move(facts), least);
  };
  return out;
}

TEST(AddedPlatform, IsReadAndJudgedLikeABuiltInOne) {
  const Result<PlatformId> id = add_platform(definition("toychip"));
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_FALSE(is_built_in(*id));
  EXPECT_TRUE(is_built_in(PlatformId::musa));
  EXPECT_EQ(name(*id), "toychip");
  EXPECT_EQ(*parse_platform(" ToyChip "), *id);
  ASSERT_EQ(fact_keys(*id).size(), 2u);
  const auto facts = parse_facts(*id, "cores=8,driver=1.2");
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->text(), "toychip: cores=8,driver=1.2");
  const auto platform = make_platform(*facts);
  ASSERT_NE(platform, nullptr);
  EXPECT_TRUE(platform->judge(backend::TORCH_SDPA, {}).reasons.empty());
  EXPECT_EQ(make_platform(*parse_facts(*id, "cores=2"))->preference({})[0].reasons[0].got,
            "2 cores");
  const std::vector<PlatformId> all = all_platforms();
  EXPECT_EQ(all.back(), *id);
}

TEST(AddedPlatform, FactsAreCheckedAgainstItsTable) {
  const PlatformId id = *add_platform(definition("toychip"));
  for (const auto& [text, piece] :
       {std::pair{"cores=8,speed=1", "unknown key 'speed'"}, std::pair{"cores=many", "an integer"},
        std::pair{"driver=1", "required key 'cores'"}}) {
    const auto facts = parse_facts(id, text);
    ASSERT_FALSE(facts) << text;
    EXPECT_NE(facts.error().message.find(piece), std::string::npos) << facts.error().message;
  }
  const auto unknown = parse_platform("toychop");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("did you mean 'toychip'"), std::string::npos);
}

TEST(AddedPlatform, TheSameNameReplacesThePolicyOnly) {
  const PlatformId first = *add_platform(definition("toyfour", 4));
  const PlatformId second = *add_platform(definition("toyfour", 16));
  EXPECT_EQ(first, second);
  EXPECT_FALSE(make_platform(*parse_facts(first, "cores=8"))
                   ->judge(backend::TORCH_SDPA, {})
                   .reasons.empty());
  PlatformDefinition other = definition("toyfour");
  other.keys.pop_back();
  EXPECT_NE(add_platform(std::move(other)).error().message.find("exists with other facts"),
            std::string::npos);
}

TEST(AddedPlatform, WrongDefinitionsAreRefused) {
  EXPECT_NE(add_platform(definition("cuda")).error().message.find("built-in"), std::string::npos);
  EXPECT_NE(add_platform(definition("Toy")).error().message.find("[a-z]"), std::string::npos);
  EXPECT_NE(add_platform(definition("")).error().message.find("[a-z]"), std::string::npos);
  PlatformDefinition twice = definition("toytwice");
  twice.keys.push_back(twice.keys.front());
  EXPECT_NE(add_platform(std::move(twice)).error().message.find("given twice"), std::string::npos);
  PlatformDefinition bad_key = definition("toykey");
  bad_key.keys[0].key = "no blanks";
  EXPECT_FALSE(add_platform(std::move(bad_key)));
  PlatformDefinition none = definition("toynone");
  none.make = nullptr;
  EXPECT_FALSE(add_platform(std::move(none)));
}

}  // namespace
}  // namespace fovea
