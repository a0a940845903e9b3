#include "src/backends/reference/backend.hpp"

#include <utility>

#include "src/backends/block_lists.hpp"
#include "src/backends/cpu_plan.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/backends/reference/elements.hpp"

namespace fovea::backends {
namespace {

constexpr Instance kInstances[] = {{.name = "f64",
                                    .path = "cpu.reference",
                                    .piecewise = true,
                                    .sparse = true,
                                    .compute_qk = "f64",
                                    .compute_pv = "f64",
                                    .device = needs_cpu}};

// One worker's share of the workspace, rounded so that no two workers share a cache line.
size_t worker_bytes(const Problem& problem) noexcept {
  constexpr size_t kLine = 64;
  return (reference::scratch_bytes(problem) + kLine - 1) / kLine * kLine;
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

class ReferencePlan final : public CpuPlan {
 public:
  ReferencePlan(const Problem& problem, std::shared_ptr<const BlockMask> mask,
                const ExecutionContext& context, Receipt receipt)
      : CpuPlan(problem, context, std::move(receipt)), mask_(std::move(mask)) {}

 private:
  void execute(const AttentionTensors& tensors, void* workspace) const noexcept override {
    TensorSink sink(problem(), tensors);
    const std::optional<reference::BlockLists> lists =
        mask_ != nullptr ? reference::block_lists(*mask_)
                         : reference::given_lists(problem(), tensors);
    const reference::Tiles tiles(problem(), tensors, lists ? &*lists : nullptr);
    const size_t share = worker_bytes(problem());
    executor().parallel_for(tiles.count(), [&](int64_t tile, int worker) {
      tiles.run(tile, static_cast<char*>(workspace) + static_cast<size_t>(worker) * share, sink);
    });
  }

  const std::shared_ptr<const BlockMask> mask_;  // null: dense, or lists come with the call
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:reference"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).first;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    auto [result, mask] = ask(name, problem, spec, context);
    FOVEA_CHECK(admit(result, problem, context));
    Receipt receipt = make_cpu_receipt(result, kInstances[0]);
    receipt.accumulate = "f64";
    receipt.density = result.density;
    return std::unique_ptr<Plan>(
        std::make_unique<ReferencePlan>(problem, std::move(mask), context, std::move(receipt)));
  }

 private:
  // The report, and the blocks of a sparse problem that are known before the call.
  static std::pair<ExecutionPathResult, std::shared_ptr<const BlockMask>> ask(
      BackendName name, const Problem& problem, const AttentionSpec* spec,
      const ExecutionContext& context) {
    const Choice choice = choose(kInstances, problem, context);
    ExecutionPathResult result = report(name, "fovea", choice, problem, context);
    apply_spec(result, spec);
    if (choice.instance == nullptr) return {std::move(result), nullptr};
    result.workspace_bytes =
        worker_bytes(problem) * static_cast<size_t>(executor_of(context).workers());
    if (!problem.sparse) return {std::move(result), nullptr};
    if (problem.layout == Layout::packed) {
      result.support = SupportStatus::unsupported;
      result.reasons.push_back({ReasonCode::packed, "layout", "packed", "none", {}});
    }
    ListAnswer lists = read_lists(backend::REFERENCE, problem, spec, context);
    if (!lists.request) {
      result.support = SupportStatus::unsupported;
      for (Reason& reason : lists.reasons) result.reasons.push_back(std::move(reason));
      return {std::move(result), nullptr};
    }
    result.density = lists.request->density;
    return {std::move(result), std::move(lists.request->mask)};
  }
};

}  // namespace

std::shared_ptr<const Backend> make_reference_backend() {
  return std::make_shared<const ReferenceBackend>();
}

}  // namespace fovea::backends
