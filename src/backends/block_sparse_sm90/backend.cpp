#include "src/backends/block_sparse_sm90/backend.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "src/backends/block_lists.hpp"
#include "src/backends/block_topk_sm90/selection.hpp"
#include "src/backends/flash_sm90/plan.hpp"
#include "src/core/text.hpp"

namespace fovea::backends {
namespace {

constexpr Instance row(std::string_view name, int64_t min, int64_t max) {
  Instance in = flash_sm90_row(name, min, max);
  in.path = "cuda.block_sparse_sm90";
  in.masks = {MaskKind::none};
  in.causal = in.window = in.packed = false;
  in.sparse = true;
  return in;
}

constexpr Instance kInstances[] = {row("d64", 8, 64), row("d96", 8, 96), row("d128", 8, 128),
                                   row("d256", 8, 256)};

// What the kernels cannot read of lists that the name may have.
std::optional<Reason> refusal(const Problem& p, const ListRequest& lists,
                              int64_t protected_kv_prefix) {
  const int64_t head_dim = std::max(p.head_dim, p.dim_v);
  if (lists.shape.block_q == 64 && head_dim > 128)
    return Reason{ReasonCode::sparse, "block_q", text::concat("64 with head_dim ", head_dim),
                  "128, or head_dim at most 128",
                  "use blocks of 128 queries; blocks of keys may have 64 or 128"};
  const bool partial =
      lists.shape.partial || (lists.mask != nullptr && !lists.mask->partial().empty());
  if (partial)
    return Reason{ReasonCode::mask, "block_partial", "given", "none",
                  "keep whole blocks, or hide the rest of the keys by kv_lengths"};
  // Whether lists in device memory keep the protected keys shows only in their values.
  if (lists.source == ListSource::given && protected_kv_prefix > 0)
    return Reason{ReasonCode::sparse, "protected_kv_prefix", std::to_string(protected_kv_prefix),
                  "0 with block lists on the device", "pass a BlockMask, or choose block_topk"};
  return std::nullopt;
}

class BlockSparseSm90Backend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:block_sparse_sm90"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const Answer answer = ask(name, problem, spec, context);
    FOVEA_CHECK(admit(answer.report, problem, context));
    Receipt receipt = make_receipt(answer.report, *answer.choice.instance);
    receipt.density = answer.report.density;
    return make_flash_sm90_plan(problem, answer.kernel, context.device, std::move(receipt),
                                &*answer.lists);
  }

 private:
  struct Answer {
    Choice choice;
    std::optional<ListRequest> lists;
    flash_sm90::Choice kernel;
    ExecutionPathResult report;
  };

  // All reasons: those of the kernels and those of the lists.
  static Answer ask(BackendName name, const Problem& problem, const AttentionSpec* spec,
                    const ExecutionContext& context) {
    Answer answer;
    answer.choice = choose(kInstances, problem, context);
    answer.report = report(name, "fovea", answer.choice, problem, context);
    apply_spec(answer.report, spec);
    const auto refuse = [&](Reason reason) {
      answer.report.support = SupportStatus::unsupported;
      answer.report.reasons.push_back(std::move(reason));
    };
    ListAnswer lists = read_lists(name, problem, spec, context);
    for (Reason& reason : lists.reasons) refuse(std::move(reason));
    if (!lists.request) return answer;
    answer.report.density = lists.request->density;
    if (auto reason = refusal(problem, *lists.request, context.protected_kv_prefix))
      refuse(std::move(*reason));
    answer.lists = std::move(lists.request);
    if (answer.choice.instance == nullptr) return answer;
    answer.kernel = flash_sm90::choose(flash_sm90_problem(problem, &answer.lists->shape));
    if (answer.kernel.refusal == flash_sm90::Refusal::size)
      refuse({ReasonCode::seq_limit,
              "seq_q x heads",
              std::to_string(problem.seq_q) + " x " + std::to_string(problem.heads_q),
              "at most 2^30 work items",
              {}});
    answer.report.workspace_bytes = answer.kernel.workspace_bytes;
    if (answer.lists->topk) {
      if (std::optional<Reason> reason = selection_refusal(problem)) refuse(std::move(*reason));
      answer.report.workspace_bytes +=
          block_topk_sm90::workspace_layout(make_selection(problem, *answer.lists->topk)).total;
    }
    return answer;
  }
};

}  // namespace

std::shared_ptr<const Backend> make_block_sparse_sm90_backend() {
  return std::make_shared<const BlockSparseSm90Backend>();
}

}  // namespace fovea::backends
