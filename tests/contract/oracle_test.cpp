// Every case of the table, on every backend, against the float64 oracle.
#include <cctype>

#include "tests/contract/cases.hpp"
#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

class ContractOracle : public testing::TestWithParam<std::tuple<Target, Case>> {};

TEST_P(ContractOracle, Agrees) {
  const auto& [target, c] = GetParam();
  auto problem = parse_problem(c.problem);
  ASSERT_TRUE(problem.has_value()) << problem.error().message;
  problem->seed = 1 + std::hash<std::string>{}(c.name) % 1000;
  expect_agrees(target, *problem);
}

std::string name_of(const testing::TestParamInfo<std::tuple<Target, Case>>& pair) {
  return std::get<0>(pair.param).label + "_" + std::get<1>(pair.param).name;
}

INSTANTIATE_TEST_SUITE_P(Backend, ContractOracle,
                         testing::Combine(testing::ValuesIn(targets()), testing::ValuesIn(cases())),
                         name_of);

// A mask that may leave rows empty, over every kind.
FOVEA_CONTRACT_SUITE(ContractEmptyRows);

TEST_P(ContractEmptyRows, RandomMasksWithEmptyRows) {
  for (const char* text :
       {"f32 b2 h2 s30 d16 sk=5 mask=bool lse=1", "bf16 b2 h2 s30 d16 sk=4 mask=bias lse=1",
        "f16 b3 h2 s9 d16 sk=3 mask=keys lse=1",
        "f32 b3 h2 s30 d16 sk=6 mask=causal+bool kvlen=? lse=1"})
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      auto problem = parse_problem(text);
      ASSERT_TRUE(problem.has_value()) << problem.error().message;
      problem->seed = seed;
      RandomOptions options;
      options.hidden = 0.8;
      options.empty_rows = true;
      expect_agrees(GetParam(), *problem, options);
    }
}

}  // namespace
}  // namespace fovea::contract
