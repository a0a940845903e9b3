#include "src/backends/flash_sm80/backend.hpp"

#include <memory>
#include <string>
#include <utility>

#include "src/backends/cuda_call.hpp"
#include "src/backends/flash_sm80/launch.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {
namespace {

std::optional<Reason> needs_ampere(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  const std::optional<int64_t> sm = facts.integer("sm");
  if (sm.has_value() && *sm >= 80) return std::nullopt;
  return Reason{ReasonCode::architecture, "sm", std::string(facts.get("sm").value_or("unknown")),
                ">= 80", "choose TORCH_SDPA, which runs on every GPU from sm_75"};
}

constexpr Instance row(std::string_view name, Set<Element> dtypes, int32_t element_bytes) {
  Instance in;
  in.name = name;
  in.path = "cuda.flash_sm80";
  in.dtypes = dtypes;
  in.head_dim = in.dim_v = {1, 256, 1};
  in.mask_dtypes = {Element::boolean, Element::u8, Element::f32, Element::f16, Element::bf16};
  in.alignment = element_bytes;
  in.device = needs_ampere;
  in.built = FOVEA_CUDA_SM80 != 0;
  return in;
}
constexpr Instance plain_row() {
  Instance in = row("plain", {Element::f16, Element::bf16}, 16);
  in.head_dim = in.dim_v = {8, 256, 8};
  in.masks = {MaskKind::none};
  in.stride_multiple = 8;
  return in;
}

// One row for each form; the kernel of a form that runs follows from the head dimensions.
constexpr Instance kInstances[] = {plain_row(), row("any", {Element::f16, Element::bf16}, 2),
                                   row("f32", {Element::f32}, 4)};
constexpr const Instance& kAny = kInstances[1];
constexpr const Instance& kFloat = kInstances[2];

flash_sm80::Key kernel_key(const Problem& p, const Instance& row) {
  using flash_sm80::Form;
  using flash_sm80::Precision;
  const Precision precision = p.dtype == kF32   ? Precision::f32
                              : p.dtype == kF16 ? Precision::f16
                                                : Precision::bf16;
  const Form form = row.masks.has(MaskKind::boolean) ? Form::any : Form::plain;
  return flash_sm80::choose(precision, form, p.head_dim, p.dim_v);
}

#if FOVEA_CUDA_SM80
// Holds what is known of the devices that the plan has run on.
CallLauncher make_launcher(const flash_sm80::Key& key) {
  return [key, devices = std::make_shared<flash_sm80::DeviceCache>()](
             const cuda::AttentionCall& call, int device, Stream stream) -> Status {
    const flash_sm80::LaunchStatus status =
        flash_sm80::launch(key, call, device, *devices, static_cast<CUstream_st*>(stream.handle));
    if (status.stage == 0) return {};
    return Error{status.stage == 1 ? ErrorCode::internal : ErrorCode::device_error,
                 std::string("cuda.flash_sm80: ") + flash_sm80::describe(status) + " (code " +
                     std::to_string(status.code) + ")",
                 {}};
  };
}
#endif

class FlashSm80Backend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:flash_sm80"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return decide(name, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const Decision decision = decide(name, problem, spec, context);
    FOVEA_CHECK(admit(decision.report, problem, context));
#if FOVEA_CUDA_SM80
    Receipt receipt = make_receipt(decision.report, *decision.row);
    receipt.isa = "sm_80";
    receipt.compute_qk = receipt.compute_pv = std::string(fovea::name(problem.dtype));
    receipt.padding_head_dim = decision.key.head_dim - problem.head_dim;
    return make_call_plan(problem, context.device, static_cast<size_t>(decision.row->alignment),
                          std::move(receipt), make_launcher(decision.key));
#else
    return Error{ErrorCode::not_built,
                 fovea::name(name) + ": " + decision.report.path + " is not in this binary",
                 {}};
#endif
  }

 private:
  struct Decision {
    ExecutionPathResult report;
    const Instance* row = nullptr;
    flash_sm80::Key key{};
  };
  static Decision decide(BackendName name, const Problem& problem, const AttentionSpec* spec,
                         const ExecutionContext& context) {
    Decision d;
    Choice choice = choose(kInstances, problem, context);
    // The widest row of the problem's type speaks for the table.
    if (choice.instance == nullptr)
      choice.reasons = refusals(problem.dtype == kF32 ? kFloat : kAny, problem, context);
    d.row = choice.instance;
    d.report = fovea::backends::report(name, "fovea", choice, problem, context);
    apply_spec(d.report, spec);
    if (d.row == nullptr) return d;
    d.key = kernel_key(problem, *d.row);
    d.report.instance += "_d" + std::to_string(d.key.head_dim);
    if (std::optional<Reason> reason =
            call_refusal(problem, flash_sm80::block_q(d.key, flash_sm80::Generation::hopper))) {
      d.report.support = SupportStatus::unsupported;
      d.report.reasons.push_back(std::move(*reason));
    }
    return d;
  }
};

}  // namespace

std::shared_ptr<const Backend> make_flash_sm80_backend() {
  return std::make_shared<const FlashSm80Backend>();
}

}  // namespace fovea::backends
