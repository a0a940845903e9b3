#include "src/backends/flash/backend.hpp"

#include <utility>
#include <vector>

#include "src/backends/flash_sm80/backend.hpp"
#include "src/backends/flash_sm90/backend.hpp"

namespace fovea::backends {
namespace {

// Asks its families best first. Which one runs is dispatch: it shows as the path, never as a
// fallback.
class FlashBackend final : public Backend {
 public:
  explicit FlashBackend(std::vector<std::shared_ptr<const Backend>> families)
      : families_(std::move(families)) {}

  std::string_view path() const noexcept override { return "builtin:flash"; }

  ExecutionPathResult resolve(BackendName name, const Problem& problem, const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).second;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName name, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    return ask(name, problem, spec, context).first->plan(name, problem, spec, context);
  }

 private:
  // The first family that can run the problem, else the one with the fewest reasons against it.
  std::pair<const Backend*, ExecutionPathResult> ask(BackendName name, const Problem& problem,
                                                     const AttentionSpec* spec,
                                                     const ExecutionContext& context) const {
    std::pair<const Backend*, ExecutionPathResult> closest;
    for (const auto& family : families_) {
      ExecutionPathResult report = family->resolve(name, problem, spec, context);
      if (report.support != SupportStatus::unsupported) return {family.get(), std::move(report)};
      if (closest.first == nullptr || report.reasons.size() < closest.second.reasons.size())
        closest = {family.get(), std::move(report)};
    }
    return closest;
  }

  std::vector<std::shared_ptr<const Backend>> families_;
};

}  // namespace

std::shared_ptr<const Backend> make_flash_backend() {
  return std::make_shared<const FlashBackend>(
      std::vector{make_flash_sm90_backend(), make_flash_sm80_backend()});
}

}  // namespace fovea::backends
