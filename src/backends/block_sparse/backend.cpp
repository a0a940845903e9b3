#include "src/backends/block_sparse/backend.hpp"

#include <utility>

#include "src/backends/block_lists.hpp"
#include "src/backends/cpu_flash/call.hpp"
#include "src/sparse/topk.hpp"

namespace fovea::backends {
namespace {

// Sizes and strides of lists whose memory comes later.
cpu_flash::BlockList shape_of(const ListShape& shape, int64_t seq_q) {
  const int64_t rows = (seq_q + shape.block_q - 1) / shape.block_q;
  cpu_flash::BlockList lists;
  if (shape.heads > 1) lists.head = rows;
  if (shape.batch > 1) lists.batch = shape.heads * rows;
  lists.max_count = shape.most;
  lists.block_q = shape.block_q;
  lists.block_kv = shape.block_kv;
  return lists;
}

// What a run needs besides the kernel's own workspace, in this order: counts, indices, scratch of
// the selection. Sizes are multiples of a cache line.
struct SelectedMemory {
  size_t counts = 0;
  size_t indices = 0;
  size_t scratch = 0;

  size_t total() const noexcept { return counts + indices + scratch; }
};

SelectedMemory selected_memory(const sparse::TopkSelection& selection, const Problem& p,
                               int workers) noexcept {
  constexpr size_t kLine = 64;
  const auto bytes = [](int64_t entries) {
    return (static_cast<size_t>(entries) * sizeof(int32_t) + kLine - 1) / kLine * kLine;
  };
  const int64_t rows = p.batch * p.heads_q * selection.rows();
  return {bytes(rows), bytes(rows * selection.most()), selection.workspace_bytes(workers)};
}

class BlockSparsePlan final : public CpuPlan {
 public:
  BlockSparsePlan(const Problem& problem, ListRequest request, const CpuFlashCall& call,
                  const ExecutionContext& context, Receipt receipt)
      : CpuPlan(problem, context, std::move(receipt)),
        request_(std::move(request)),
        call_(call),
        lists_(shape_of(request_.shape, problem.seq_q)) {
    if (request_.mask != nullptr) {
      lists_.counts = request_.mask->counts().data();
      lists_.indices = request_.mask->indices().data();
      if (!request_.mask->partial().empty()) lists_.partial = request_.mask->partial().data();
    }
    if (request_.topk) {
      selection_.emplace(problem, *request_.topk);
      memory_ = selected_memory(*selection_, problem, executor().workers());
    }
  }

 private:
  void execute(const AttentionTensors& t, void* workspace) const noexcept override {
    auto* memory = static_cast<char*>(workspace);
    cpu_flash::BlockList lists = lists_;
    if (request_.source == ListSource::given) {
      lists.counts = static_cast<const int32_t*>(t.block_counts.data);
      lists.indices = static_cast<const int32_t*>(t.block_indices.data);
      lists.partial = static_cast<const uint8_t*>(t.block_partial.data);
    } else if (selection_) {
      auto* counts = reinterpret_cast<int32_t*>(memory);
      auto* indices = reinterpret_cast<int32_t*>(memory + memory_.counts);
      selection_->run(t.q.data, t.k.data, t.kv_lengths.data, t.kv_lengths.dtype == kI64,
                      memory + memory_.counts + memory_.indices, executor(), counts, indices);
      lists.counts = counts;
      lists.indices = indices;
    }
    call_.run(t, &lists, memory + memory_.total(), executor());
  }

  const ListRequest request_;
  const CpuFlashCall call_;
  cpu_flash::BlockList lists_;
  std::optional<sparse::TopkSelection> selection_;
  SelectedMemory memory_;
};

class BlockSparseBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:block_sparse"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    Answer answer = ask(name, problem, spec, context);
    FOVEA_CHECK(admit(answer.report, problem, context));
    if (!answer.call) return missing_kernel(answer.report);
    Receipt receipt = make_cpu_flash_receipt(answer.report, *answer.choice.instance, problem);
    receipt.density = answer.report.density;
    return std::unique_ptr<Plan>(std::make_unique<BlockSparsePlan>(
        problem, std::move(*answer.lists), *answer.call, context, std::move(receipt)));
  }

 private:
  struct Answer {
    Choice choice;
    std::optional<ListRequest> lists;
    std::optional<CpuFlashCall> call;
    ExecutionPathResult report;
  };

  // All reasons: those of the kernels and those of the lists.
  Answer ask(BackendName name, const Problem& problem, const AttentionSpec* spec,
             const ExecutionContext& context) const {
    Answer answer;
    answer.choice = choose(instances_, problem, context);
    ListAnswer lists = read_lists(name, problem, spec, context);
    answer.report = report(name, "fovea", answer.choice, problem, context);
    apply_spec(answer.report, spec);
    if (!lists.request) {
      answer.report.support = SupportStatus::unsupported;
      for (Reason& reason : lists.reasons) answer.report.reasons.push_back(std::move(reason));
      return answer;
    }
    answer.report.density = lists.request->density;
    answer.lists = std::move(lists.request);
    if (answer.choice.instance == nullptr) return answer;
    const cpu_flash::BlockList shape = shape_of(answer.lists->shape, problem.seq_q);
    answer.call = CpuFlashCall::make(problem, *answer.choice.instance, &shape);
    if (!answer.call) return answer;
    const int workers = executor_of(context).workers();
    answer.report.workspace_bytes = answer.call->workspace_bytes(workers);
    if (answer.lists->topk) {
      const sparse::TopkSelection selection(problem, *answer.lists->topk);
      answer.report.workspace_bytes += selected_memory(selection, problem, workers).total();
    }
    return answer;
  }

  const std::array<Instance, 7> instances_ = cpu_flash_instances(true);
};

}  // namespace

std::shared_ptr<const Backend> make_block_sparse_backend() {
  return std::make_shared<const BlockSparseBackend>();
}

}  // namespace fovea::backends
