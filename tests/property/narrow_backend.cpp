#include "property/narrow_backend.hpp"

#include "src/backends/instance.hpp"
#include "src/backends/reference/backend.hpp"

namespace fovea::property {
namespace {

using backends::Element;
using backends::Instance;

std::optional<Reason> needs_cpu(const DeviceFacts& facts) {
  if (facts.platform() == PlatformId::cpu) return std::nullopt;
  return Reason{ReasonCode::platform, "platform", std::string(name(facts.platform())), "cpu", {}};
}

constexpr Instance kTable[] = {
    // Plain dense attention in one type, four heads sizes, aligned, no extras.
    {.name = "dense",
     .path = "test.narrow",
     .dtypes = {Element::f32},
     .head_dim = {16, 64, 16},
     .dim_v = {16, 64, 16},
     .equal_dims = true,
     .masks = {MaskKind::none, MaskKind::keys},
     .mask_dtypes = {Element::boolean},
     .causal = false,
     .window = false,
     .kv_lengths = false,
     .packed = false,
     .gqa = false,
     .lse = false,
     .f32_out = false,
     .expanded_strides = false,
     .alignment = 16,
     .stride_multiple = 4,
     .device = needs_cpu},
    // Small heads of any kind, but no kernel in this binary.
    {.name = "small",
     .path = "test.narrow",
     .head_dim = {1, 8, 1},
     .device = needs_cpu,
     .built = false},
    // Everything in 16-bit types up to 40, not verified.
    {.name = "half",
     .path = "test.narrow",
     .dtypes = {Element::f16, Element::bf16},
     .head_dim = {1, 40, 1},
     .dim_v = {1, 40, 1},
     .device = needs_cpu,
     .verified = [](const DeviceFacts&) { return false; }}};

class NarrowBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:narrow"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    auto result =
        backends::report(name, "fovea", backends::choose(kTable, problem, context), context);
    backends::apply_spec(result, spec);
    if (result.support != SupportStatus::unsupported)
      result.workspace_bytes = reference_->resolve(name, problem, spec, context).workspace_bytes;
    return result;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    FOVEA_CHECK(backends::admit(resolve(name, problem, spec, context), problem, context));
    return reference_->plan(name, problem, spec, context);
  }

 private:
  std::shared_ptr<const Backend> reference_ = backends::make_reference_backend();
};

}  // namespace

std::shared_ptr<const Backend> make_narrow_backend() { return std::make_shared<NarrowBackend>(); }

}  // namespace fovea::property
