#include "src/backends/cpu_plan.hpp"

#include <utility>

#include "fovea/attention.hpp"
#include "src/backends/block_lists.hpp"
#include "src/core/list_shape.hpp"
#include "src/core/text.hpp"

namespace fovea::backends {
namespace {

// Lists that come with the call keep the blocks of the first keys in every row.
Status check_prefix(const AttentionTensors& t, const Problem& p, int64_t prefix) {
  const std::optional<ListShape> lists = list_shape(p);
  if (!lists) return {};
  const int64_t blocks = (prefix + lists->block_kv - 1) / lists->block_kv;
  const auto* counts = static_cast<const int32_t*>(t.block_counts.data);
  const auto row =
      row_without_prefix({counts, static_cast<size_t>(t.block_counts.numel())},
                         static_cast<const int32_t*>(t.block_indices.data), lists->most, blocks);
  if (!row) return {};
  return Error{ErrorCode::invalid_value,
               text::concat("attention: block_indices leaves out a block of the ", prefix,
                            " protected keys at row ", *row, " (accepted: 0..", blocks - 1,
                            " in every row)"),
               {}};
}

}  // namespace

Executor& executor_of(const ExecutionContext& context) noexcept {
  return context.executor != nullptr ? *context.executor : serial_executor();
}

std::optional<Reason> needs_cpu(const DeviceFacts& facts) {
  if (facts.platform() == PlatformId::cpu) return std::nullopt;
  return Reason{ReasonCode::platform, "platform", std::string(name(facts.platform())), "cpu",
                "run it on the CPU"};
}

Receipt make_cpu_receipt(const ExecutionPathResult& report, const Instance& instance) {
  Receipt receipt = make_receipt(report, instance);
  receipt.device = "cpu";
  return receipt;
}

CpuPlan::CpuPlan(Problem problem, const ExecutionContext& context, Receipt receipt)
    : problem_(std::move(problem)),
      tensors_(problem_, kCpu, 1),
      executor_(executor_of(context)),
      protected_kv_prefix_(context.protected_kv_prefix),
      receipt_(std::move(receipt)) {}

Status CpuPlan::run(const AttentionTensors& tensors, Workspace workspace, Stream) const noexcept {
  FOVEA_CHECK(tensors_.check(tensors));
  FOVEA_CHECK(check_workspace(workspace, workspace_bytes()));
  FOVEA_CHECK(check_values(tensors, problem_));
  if (protected_kv_prefix_ > 0) FOVEA_CHECK(check_prefix(tensors, problem_, protected_kv_prefix_));
  execute(tensors, workspace.data);
  return {};
}

}  // namespace fovea::backends
