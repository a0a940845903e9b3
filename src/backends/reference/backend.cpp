#include "src/backends/reference/backend.hpp"

#include <array>
#include <string>
#include <utility>

#include "fovea/attention.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/backends/reference/elements.hpp"
#include "src/backends/run_tensors.hpp"

namespace fovea::backends {
namespace {

std::optional<Reason> needs_cpu(const DeviceFacts& facts) {
  if (facts.platform() == PlatformId::cpu) return std::nullopt;
  return Reason{ReasonCode::platform, "platform", std::string(name(facts.platform())), "cpu",
                "run it on the CPU"};
}

constexpr Instance kInstances[] = {{.name = "f64",
                                    .path = "cpu.reference",
                                    .piecewise = true,
                                    .compute_qk = "f64",
                                    .compute_pv = "f64",
                                    .device = needs_cpu}};

// One worker's share of the workspace, rounded so that no two workers share a cache line.
size_t worker_bytes(const Problem& problem) noexcept {
  constexpr size_t kLine = 64;
  return (reference::scratch_bytes(problem) + kLine - 1) / kLine * kLine;
}

Executor& executor_of(const ExecutionContext& context) noexcept {
  return context.executor != nullptr ? *context.executor : serial_executor();
}

// Rounds each row into the caller's tensors.
class TensorSink final : public reference::RowSink {
 public:
  TensorSink(const Problem& problem, const AttentionTensors& tensors) noexcept
      : problem_(problem), tensors_(tensors) {}

  void row(const reference::Row& row) noexcept override {
    const int64_t out = reference::out_offset(problem_, row);
    for (int64_t d = 0; d < problem_.dim_v; ++d)
      reference::write(tensors_.out.data, problem_.out_dtype, out + d, row.out[d]);
    if (problem_.lse)
      static_cast<float*>(tensors_.lse.data)[reference::lse_offset(problem_, row)] =
          static_cast<float>(row.lse);
  }

 private:
  const Problem& problem_;
  const AttentionTensors& tensors_;
};

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(Problem problem, Executor& executor, Receipt receipt)
      : problem_(std::move(problem)), executor_(executor), receipt_(std::move(receipt)) {}

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  Status run(const AttentionTensors& tensors, Workspace workspace, Stream) const noexcept override {
    FOVEA_CHECK(check_tensors(problem_, tensors));
    FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
    FOVEA_CHECK(check_values(tensors, problem_));
    TensorSink sink(problem_, tensors);
    const reference::Tiles tiles(problem_, tensors);
    const size_t share = worker_bytes(problem_);
    executor_.parallel_for(tiles.count(), [&](int64_t tile, int worker) {
      tiles.run(tile, static_cast<char*>(workspace.data) + static_cast<size_t>(worker) * share,
                sink);
    });
    return {};
  }

 private:
  Problem problem_;
  Executor& executor_;
  Receipt receipt_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:reference"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    const Choice choice = choose(kInstances, problem, context);
    ExecutionPathResult result = report(name, "fovea", choice, context);
    apply_spec(result, spec);
    if (choice.instance != nullptr)
      result.workspace_bytes =
          worker_bytes(problem) * static_cast<size_t>(executor_of(context).workers());
    return result;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const ExecutionPathResult result = resolve(name, problem, spec, context);
    FOVEA_CHECK(admit(result, problem, context));
    Receipt receipt = make_receipt(result, kInstances[0]);
    receipt.device = "cpu";
    receipt.accumulate = "f64";
    return std::unique_ptr<Plan>(
        std::make_unique<ReferencePlan>(problem, executor_of(context), std::move(receipt)));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_reference_backend() {
  return std::make_shared<const ReferenceBackend>();
}

}  // namespace fovea::backends
