#include "src/backends/flash_sm90/backend.hpp"

#include <memory>
#include <string>
#include <utility>

#include "src/backends/flash_sm90/config.hpp"
#include "src/backends/flash_sm90/plan.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {
namespace {

// One row for each head-dimension bucket; sizes inside a bucket are filled up by the tensor copies.
constexpr Instance row(std::string_view name, int64_t min, int64_t max) {
  Instance in = flash_sm90_row(name, min, max);
  in.path = "cuda.flash_sm90";
  in.masks = {MaskKind::none, MaskKind::keys, MaskKind::boolean};
  in.mask_dtypes = {Element::boolean, Element::u8};
  return in;
}

constexpr Instance kInstances[] = {row("d64", 8, 64), row("d96", 8, 96), row("d128", 8, 128),
                                   row("d256", 8, 256)};

// What the instance table cannot say of a problem that has found its row.
std::optional<Reason> refusal(const Problem& p, const flash_sm90::Choice& choice) {
  if (p.mask.kind == MaskKind::boolean && p.mask.per_query)
    return Reason{
        ReasonCode::mask, "mask", "bool with a query axis", "none, keys, bool [B,H,1,Skv]",
        "choose FLASH_ATTN, which takes a kernel with arbitrary masks where one is built"};
  if (choice.refusal == flash_sm90::Refusal::none) return std::nullopt;
  return Reason{ReasonCode::seq_limit,
                "seq_q x seq_kv x heads",
                std::to_string(p.seq_q) + " x " + std::to_string(p.seq_kv) + " x " +
                    std::to_string(p.heads_q),
                "at most 2^30 rows and work items",
                {}};
}

class FlashSm90Backend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:flash_sm90"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return decide(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const Decision decision = decide(name, problem, spec, context);
    FOVEA_CHECK(admit(decision.report, problem, context));
    Receipt receipt = make_receipt(decision.report, *decision.row);
    return make_flash_sm90_plan(problem, decision.kernel, context.device, std::move(receipt));
  }

 private:
  struct Decision {
    ExecutionPathResult report;
    const Instance* row = nullptr;
    flash_sm90::Choice kernel;
  };
  static Decision decide(BackendName name, const Problem& problem, const AttentionSpec* spec,
                         const ExecutionContext& context) {
    Decision d;
    const Choice choice = choose(kInstances, problem, context);
    d.row = choice.instance;
    d.report = fovea::backends::report(name, "fovea", choice, problem, context);
    apply_spec(d.report, spec);
    if (d.row == nullptr) return d;
    d.kernel = flash_sm90::choose(flash_sm90_problem(problem));
    if (std::optional<Reason> reason = refusal(problem, d.kernel)) {
      d.report.support = SupportStatus::unsupported;
      d.report.reasons.push_back(std::move(*reason));
    } else {
      d.report.workspace_bytes = d.kernel.workspace_bytes;
    }
    return d;
  }
};

}  // namespace

std::shared_ptr<const Backend> make_flash_sm90_backend() {
  return std::make_shared<const FlashSm90Backend>();
}

}  // namespace fovea::backends
