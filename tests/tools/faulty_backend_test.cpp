// What the verbs say of a backend that is wrong.
#include <gtest/gtest.h>

#include "tests/select/fakes.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {
namespace {

// Computes nothing, and writes one element where it must not.
class StrayBackend final : public Backend {
 public:
  enum class Target { behind_the_output, an_input };
  explicit StrayBackend(Target target) : target_(target) {}

  std::string_view path() const noexcept override { return "builtin:stray"; }

  ExecutionPathResult resolve(BackendName backend, const Problem&, const AttentionSpec*,
                              const ExecutionContext&) const override {
    ExecutionPathResult report;
    report.backend = backend;
    report.support = SupportStatus::supported;
    report.built = true;
    return report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName, const Problem&, const AttentionSpec*,
                                     const ExecutionContext&) const override {
    return std::unique_ptr<Plan>(new StrayPlan(target_));
  }

 private:
  class StrayPlan final : public Plan {
   public:
    explicit StrayPlan(Target target) : target_(target) {}
    size_t workspace_bytes() const noexcept override { return 0; }
    const Receipt& receipt() const noexcept override { return receipt_; }
    Status run(const AttentionTensors& tensors, Workspace, Stream) const noexcept override {
      auto* element = target_ == Target::an_input
                          ? static_cast<float*>(tensors.q.data)
                          : static_cast<float*>(tensors.out.data) + tensors.out.numel();
      *element = 1;
      return {};
    }

   private:
    Target target_;
    Receipt receipt_;
  };

  Target target_;
};

class FaultyBackend : public testing::Test {
 protected:
  void TearDown() override { clear_override(backend::FLASH_ATTN); }

  static Result<ExitCode> run_verb(std::unique_ptr<Verb> verb,
                                   std::shared_ptr<const Backend> implementation,
                                   const std::vector<std::string>& arguments) {
    EXPECT_TRUE(register_backend(backend::FLASH_ATTN, std::move(implementation)));
    Flags flags("verb", "", "");
    verb->declare(flags);
    EXPECT_TRUE(flags.parse(arguments));
    const Terminal terminal;
    testing::internal::CaptureStdout();
    Result<ExitCode> result = verb->execute({terminal, Format::table, {}});
    output_ = testing::internal::GetCapturedStdout();
    return result;
  }

  static inline std::string output_;
};

const std::vector<std::string> kProblem = {"--problem", "f32 b1 h2 s20 d16", "--threads", "1"};

TEST_F(FaultyBackend, CheckFailsOnWrongValues) {
  const auto wrong = std::make_shared<test::FakeBackend>("builtin:fake");
  const Result<ExitCode> result = run_verb(make_check(), wrong, kProblem);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result, kComparisonFailed);
  EXPECT_NE(output_.find("FAIL"), std::string::npos);
}

TEST_F(FaultyBackend, BenchFailsOnWrongValues) {
  const auto wrong = std::make_shared<test::FakeBackend>("builtin:fake");
  std::vector<std::string> arguments = kProblem;
  arguments.insert(arguments.end(), {"--repeat", "1", "--no-baselines"});
  const Result<ExitCode> result = run_verb(make_bench(), wrong, arguments);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result, kComparisonFailed);
}

TEST_F(FaultyBackend, CheckSeesWritesBehindTheOutput) {
  using Target = StrayBackend::Target;
  const auto stray = std::make_shared<StrayBackend>(Target::behind_the_output);
  const Result<ExitCode> result = run_verb(make_check(), stray, kProblem);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::internal);
  EXPECT_NE(result.error().message.find("wrote outside its outputs"), std::string::npos);
}

TEST_F(FaultyBackend, CheckSeesWritesToAnInput) {
  const auto stray = std::make_shared<StrayBackend>(StrayBackend::Target::an_input);
  const Result<ExitCode> result = run_verb(make_check(), stray, kProblem);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::internal);
}

TEST_F(FaultyBackend, RefusalNamesTheReason) {
  const auto narrow = std::make_shared<test::FakeBackend>("builtin:fake", 8);
  std::vector<std::string> arguments = kProblem;
  arguments.insert(arguments.end(), {"--backend", "FLASH_ATTN"});
  const Result<ExitCode> result = run_verb(make_check(), narrow, arguments);
  ASSERT_FALSE(result);
  EXPECT_EQ(exit_code(result.error().code), kUnsupported);
  ASSERT_FALSE(result.error().reasons.empty());
  EXPECT_EQ(result.error().reasons.front().code, ReasonCode::head_dim);
}

}  // namespace
}  // namespace fovea::cli
