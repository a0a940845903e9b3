#include "src/backends/flash_sm90/backend.hpp"

#include <string>

#include "src/backends/instance.hpp"

namespace fovea::backends {
namespace {

std::optional<Reason> needs_hopper(const DeviceFacts& facts) {
  if (facts.platform() != PlatformId::cuda)
    return Reason{
        ReasonCode::platform, "platform", std::string(name(facts.platform())), "cuda", {}};
  if (facts.integer("sm") == 90) return std::nullopt;
  return Reason{ReasonCode::architecture, "sm", std::string(facts.get("sm").value_or("unknown")),
                "90", "choose FLASH_ATTN, which takes the best kernel of the device"};
}

// Without a committed validation record a path runs but is never claimed verified.
bool unverified(const DeviceFacts&) { return false; }

// One row for each head-dimension bucket; sizes inside a bucket are filled up by the tensor copies.
constexpr Instance row(std::string_view name, int64_t min, int64_t max) {
  Instance in;
  in.name = name;
  in.path = "cuda.flash_sm90";
  in.dtypes = {Element::f16, Element::bf16};
  in.head_dim = {min, max, 8};
  in.dim_v = {8, max, 8};
  in.masks = {MaskKind::none, MaskKind::keys};
  in.mask_dtypes = {Element::boolean};
  in.expanded_strides = false;
  in.alignment = 16;
  in.stride_multiple = 8;
  in.compute_qk = "input";
  in.compute_pv = "input";
  in.device = needs_hopper;
  in.verified = unverified;
  in.built = false;
  return in;
}

constexpr Instance kInstances[] = {row("d64", 8, 64), row("d96", 8, 96), row("d128", 8, 128),
                                   row("d256", 8, 256)};

class FlashSm90Backend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:flash_sm90"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    ExecutionPathResult result =
        report(name, "fovea", choose(kInstances, problem, context), context);
    apply_spec(result, spec);
    return result;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    const ExecutionPathResult result = resolve(name, problem, spec, context);
    FOVEA_CHECK(admit(result, problem, context));
    return Error{ErrorCode::not_built,
                 fovea::name(name) + ": " + result.path + " is not in this binary",
                 {}};
  }
};

}  // namespace

std::shared_ptr<const Backend> make_flash_sm90_backend() {
  return std::make_shared<const FlashSm90Backend>();
}

}  // namespace fovea::backends
