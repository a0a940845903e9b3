#include "tests/property/narrow_backend.hpp"

#include <array>

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

// Plain dense attention, aligned, no extras.
constexpr Instance dense(std::string_view name, backends::Set<Element> dtypes) {
  Instance in;
  in.name = name;
  in.path = "test.narrow";
  in.dtypes = dtypes;
  in.head_dim = {16, 64, 16};
  in.dim_v = {16, 64, 16};
  in.equal_dims = true;
  in.masks = {MaskKind::none, MaskKind::keys};
  in.mask_dtypes = {Element::boolean};
  in.causal = in.window = in.kv_lengths = in.packed = in.gqa = in.lse = in.f32_out = false;
  in.expanded_strides = false;
  in.alignment = 16;
  in.stride_multiple = 4;
  in.device = needs_cpu;
  return in;
}

// The second row is not verified, the third not in this binary.
constexpr std::array<Instance, 3> make_table() {
  std::array<Instance, 3> table = {dense("f32", {Element::f32}),
                                   dense("half", {Element::f16, Element::bf16}),
                                   dense("small", {Element::f32})};
  table[1].verified = [](const DeviceFacts&) { return false; };
  table[2].head_dim = table[2].dim_v = {4, 12, 4};
  table[2].built = false;
  return table;
}
constexpr std::array<Instance, 3> kTable = make_table();

class NarrowBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "builtin:narrow"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    auto result = backends::report(name, "fovea", backends::choose(kTable, problem, context),
                                   problem, context);
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
