#include "src/backends/cuda_sdpa/backend.hpp"

#include <string>
#include <utility>

#include "src/backends/cuda_call.hpp"
#include "src/backends/cuda_sdpa/launch.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {
namespace {

std::optional<Reason> needs_turing(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  const std::optional<int64_t> sm = facts.integer("sm");
  if (sm.has_value() && *sm >= 75) return std::nullopt;
  return Reason{ReasonCode::architecture,
                "sm",
                std::string(facts.get("sm").value_or("unknown")),
                ">= 75",
                {}};
}

constexpr Instance row(std::string_view name, Set<Element> dtypes, int32_t element_bytes) {
  Instance in;
  in.name = name;
  in.path = "cuda.sdpa";
  in.dtypes = dtypes;
  in.head_dim = in.dim_v = {1, cuda_sdpa::kMaxDim, 1};
  in.mask_dtypes = {Element::boolean, Element::u8, Element::f32, Element::f16, Element::bf16};
  in.alignment = element_bytes;
  in.device = needs_turing;
  in.built = FOVEA_CUDA_PORTABLE != 0;
  return in;
}

constexpr Instance kInstances[] = {row("f32", {Element::f32}, 4), row("f16", {Element::f16}, 2),
                                   row("bf16", {Element::bf16}, 2)};

#if FOVEA_CUDA_PORTABLE
cuda_sdpa::Type type_of(DType dtype) {
  if (dtype == kF16) return cuda_sdpa::Type::f16;
  return dtype == kBF16 ? cuda_sdpa::Type::bf16 : cuda_sdpa::Type::f32;
}

CallLauncher make_launcher(DType dtype) {
  return [type = type_of(dtype)](const cuda::AttentionCall& call, int device,
                                 Stream stream) -> Status {
    const int code =
        cuda_sdpa::launch(type, call, device, static_cast<CUstream_st*>(stream.handle));
    if (code == 0) return {};
    return Error{ErrorCode::device_error,
                 std::string("cuda.sdpa: ") + cuda_sdpa::describe(code) + " (code " +
                     std::to_string(code) + ")",
                 {}};
  };
}
#endif

class CudaSdpaBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:cuda_sdpa"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return decide(name, problem, spec, context).first;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const auto [report, row] = decide(name, problem, spec, context);
    FOVEA_CHECK(admit(report, problem, context));
#if FOVEA_CUDA_PORTABLE
    Receipt receipt = make_receipt(report, *row);
    receipt.isa = "sm_75";
    return make_call_plan(problem, context.device, static_cast<size_t>(row->alignment),
                          std::move(receipt), make_launcher(problem.dtype));
#else
    return Error{ErrorCode::not_built,
                 fovea::name(name) + ": " + report.path + " is not in this binary",
                 {}};
#endif
  }

 private:
  static std::pair<ExecutionPathResult, const Instance*> decide(BackendName name,
                                                                const Problem& problem,
                                                                const AttentionSpec* spec,
                                                                const ExecutionContext& context) {
    const Choice choice = choose(kInstances, problem, context);
    ExecutionPathResult report = fovea::backends::report(name, "fovea", choice, problem, context);
    apply_spec(report, spec);
    if (choice.instance != nullptr)
      if (std::optional<Reason> reason = call_refusal(problem, cuda_sdpa::kBlockQ)) {
        report.support = SupportStatus::unsupported;
        report.reasons.push_back(std::move(*reason));
      }
    return {std::move(report), choice.instance};
  }
};

}  // namespace

std::shared_ptr<const Backend> make_cuda_sdpa_backend() {
  return std::make_shared<const CudaSdpaBackend>();
}

}  // namespace fovea::backends
