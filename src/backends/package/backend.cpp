#include "src/backends/package/backend.hpp"

#include <string>
#include <utility>

#include "fovea/reason.hpp"
#include "src/backends/package/kernels.hpp"

namespace fovea::backends {
namespace {

class PackageBackend final : public Backend {
 public:
  explicit PackageBackend(std::string_view package)
      : path_("package:" + std::string(package)), package_(package) {}

  std::string_view path() const noexcept override { return path_; }

  ExecutionPathResult resolve(BackendName backend, const Problem& problem,
                              const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    ExecutionPathResult r;
    r.backend = backend;
    r.provider = provider(context.facts);
    r.path = "package." + package_;
    const Instance kernel = package_kernel(backend, context.facts.platform());
    r.lossy = kernel.lossy;
    r.reasons = refusals(kernel, problem, context);
    if (spec != nullptr)
      for (Reason& reason : option_refusals(*spec, context.facts))
        r.reasons.push_back(std::move(reason));
    if (!r.reasons.empty()) return r;
    if (context.local) {
      r.reasons.push_back({ReasonCode::not_registered, "provider", r.provider,
                           "a registered binding",
                           "register the package's binding behind " + name(backend)});
    } else {
      r.support = SupportStatus::unmigrated;
    }
    return r;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName backend, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    ExecutionPathResult r = resolve(backend, problem, spec, context);
    if (r.reasons.empty())
      r.reasons.push_back({ReasonCode::platform, "facts", "another machine", "this machine", {}});
    return Error{ErrorCode::not_available, name(backend) + ": " + sentence(r.reasons), r.reasons};
  }

 private:
  std::string provider(const DeviceFacts& facts) const {
    std::string text = "package " + package_;
    if (auto version = facts.get(package_); version && *version != "1" && *version != "unknown")
      text += " " + std::string(*version);
    return text;
  }

  std::string path_;
  std::string package_;
};

}  // namespace

std::shared_ptr<const Backend> make_package_backend(std::string_view package) {
  return std::make_shared<PackageBackend>(package);
}

}  // namespace fovea::backends
