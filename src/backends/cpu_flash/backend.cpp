#include "src/backends/cpu_flash/backend.hpp"

#include <utility>

#include "src/backends/cpu_flash/call.hpp"

namespace fovea::backends {
namespace {

class CpuFlashPlan final : public CpuPlan {
 public:
  CpuFlashPlan(const Problem& problem, const CpuFlashCall& call, const ExecutionContext& context,
               Receipt receipt)
      : CpuPlan(problem, context, std::move(receipt)), call_(call) {}

 private:
  void execute(const AttentionTensors& tensors, void* workspace) const noexcept override {
    call_.run(tensors, nullptr, workspace, executor());
  }

  const CpuFlashCall call_;
};

class CpuFlashBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:cpu_flash"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const Answer answer = ask(name, problem, spec, context);
    FOVEA_CHECK(admit(answer.report, problem, context));
    if (!answer.call) return missing_kernel(answer.report);
    return std::unique_ptr<Plan>(std::make_unique<CpuFlashPlan>(
        problem, *answer.call, context,
        make_cpu_flash_receipt(answer.report, *answer.choice.instance, problem)));
  }

 private:
  struct Answer {
    Choice choice;
    std::optional<CpuFlashCall> call;
    ExecutionPathResult report;
  };

  Answer ask(BackendName name, const Problem& problem, const AttentionSpec* spec,
             const ExecutionContext& context) const {
    Answer answer;
    answer.choice = choose(instances_, problem, context);
    answer.report = report(name, "fovea", answer.choice, problem, context);
    apply_spec(answer.report, spec);
    if (answer.choice.instance == nullptr) return answer;
    answer.call = CpuFlashCall::make(problem, *answer.choice.instance);
    if (answer.call)
      answer.report.workspace_bytes = answer.call->workspace_bytes(executor_of(context).workers());
    return answer;
  }

  const std::array<Instance, 7> instances_ = cpu_flash_instances(false);
};

}  // namespace

std::shared_ptr<const Backend> make_cpu_flash_backend() {
  return std::make_shared<const CpuFlashBackend>();
}

}  // namespace fovea::backends
