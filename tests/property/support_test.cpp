// For 10,000 random questions per backend: the answer of resolve is what plan and run then do.
#include <map>
#include <set>

#include "src/core/compare.hpp"
#include "src/sparse/pattern.hpp"
#include "tests/contract/harness.hpp"
#include "tests/property/generator.hpp"
#include "tests/property/narrow_backend.hpp"

namespace fovea::property {
namespace {

constexpr int kQuestions = 10000;
constexpr int kTableQuestions = 3000;  // to a table that runs on the oracle anyway
constexpr int kCompareEvery = 4;
constexpr uint64_t kSeed = 20261130;

struct Subject {
  contract::Target target;
  std::set<ReasonCode> reasons;  // those that must appear
  bool plain = false;            // runs little more than dense attention
};

std::vector<Subject> subjects() {
  const std::set<ReasonCode> whole = {
      ReasonCode::head_dim, ReasonCode::dim_v,    ReasonCode::sparse,  ReasonCode::dtype,
      ReasonCode::platform, ReasonCode::paged_kv, ReasonCode::provider};
  std::vector<Subject> out;
  for (contract::Target& target : contract::targets()) out.push_back({target, whole, false});
  contract::Target narrow = contract::targets().front();
  narrow.label = "narrow_table";
  narrow.backend = make_narrow_backend();
  out.push_back(
      {narrow,
       {ReasonCode::dtype, ReasonCode::output_dtype, ReasonCode::head_dim, ReasonCode::dim_v,
        ReasonCode::heads, ReasonCode::mask, ReasonCode::mask_dtype, ReasonCode::causal,
        ReasonCode::window, ReasonCode::kv_lengths, ReasonCode::packed, ReasonCode::lse,
        ReasonCode::sparse, ReasonCode::strides, ReasonCode::alignment, ReasonCode::platform,
        ReasonCode::paged_kv, ReasonCode::provider, ReasonCode::not_built},
       true});
  return out;
}

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.target.label;
}

class SupportProperty : public testing::TestWithParam<Subject> {};

// Runs a supported question; every kCompareEvery-th result is compared with the oracle.
void run_question(const contract::Target& target, const Question& q, const Plan& plan,
                  bool compare) {
  RandomOptions options;
  options.empty_rows = q.problem.seed % 2 == 0;
  auto inputs = make_random_inputs(q.problem, options);
  ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
  const uint64_t before = inputs->input_hash();
  const Status status = target.launcher->launch(plan, inputs->tensors());
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(inputs->input_hash(), before);
  EXPECT_TRUE(inputs->output_guards_intact());
  if (!compare) return;
  std::shared_ptr<const BlockMask> mask;
  if (q.problem.sparse) {
    mask = sparse::planned_mask(sparse::read_pattern(q.problem).value()).value();
  }
  auto oracle = backends::reference::compute_oracle(q.problem, inputs->tensors(), *target.executor,
                                                    mask.get());
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  const auto agreement = backends::reference::compare_to_oracle(q.problem, inputs->tensors(),
                                                                *oracle, DataKind::random);
  EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2 << " of " << agreement.tolerance.rel_l2
                              << ", LSE " << agreement.lse.max_abs << " of "
                              << agreement.tolerance.lse;
}

TEST_P(SupportProperty, ResolvePlanAndRunAgree) {
  const contract::Target& target = GetParam().target;
  const int count = GetParam().plain ? kTableQuestions : kQuestions;
  Questions questions(kSeed, target.context, GetParam().plain);
  std::map<SupportStatus, int> answers;
  std::set<ReasonCode> seen;
  for (int n = 0; n < count && !HasFailure(); ++n) {
    const Question q = questions.next();
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", question " + std::to_string(n) + ": " +
                 q.text());
    ASSERT_TRUE(validate(q.problem).has_value()) << validate(q.problem).error().message;
    const AttentionSpec* spec = q.spec ? &*q.spec : nullptr;
    const auto report = target.backend->resolve(target.name, q.problem, spec, q.context);
    const auto again = target.backend->resolve(target.name, q.problem, spec, q.context);
    EXPECT_EQ(report.support, again.support);
    EXPECT_EQ(report.reasons, again.reasons);
    auto made = target.backend->plan(target.name, q.problem, spec, q.context);
    ++answers[report.support];
    EXPECT_EQ(made.has_value(), report.support != SupportStatus::unsupported)
        << (made ? "" : made.error().message);
    if (report.support == SupportStatus::unsupported) {
      EXPECT_FALSE(report.reasons.empty());
      for (const Reason& reason : report.reasons) {
        seen.insert(reason.code);
        EXPECT_FALSE(reason.field.empty());
        EXPECT_FALSE(sentence(reason).empty());
      }
      if (!made) {
        EXPECT_EQ(made.error().reasons, report.reasons);
      }
    } else if (made) {
      EXPECT_TRUE(report.reasons.empty());
      run_question(target, q, **made, n % kCompareEvery == 0);
    }
  }
  const int refused = answers[SupportStatus::unsupported];
  EXPECT_GE(refused, count / 4);
  EXPECT_LE(refused, count * 3 / 4);
  for (ReasonCode code : GetParam().reasons)
    EXPECT_EQ(seen.count(code), 1u) << name(code) << " never appeared";
  RecordProperty("supported", answers[SupportStatus::supported]);
  RecordProperty("unmigrated", answers[SupportStatus::unmigrated]);
  RecordProperty("refused", refused);
}

std::string label(const testing::TestParamInfo<Subject>& subject) {
  return subject.param.target.label;
}
INSTANTIATE_TEST_SUITE_P(Backend, SupportProperty, testing::ValuesIn(subjects()), label);

}  // namespace
}  // namespace fovea::property
