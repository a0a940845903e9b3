#include "tests/contract/target.hpp"

#include <cstdlib>
#include <cstring>
#include <ostream>

#include <gtest/gtest.h>

#include "fovea/executor.hpp"
#include "src/backends/cpu_flash/backend.hpp"
#include "src/backends/reference/backend.hpp"
#include "src/simd/cpu_features.hpp"
#include "tests/contract/count_new.hpp"

namespace fovea::contract {
namespace {

// Runs in place, in a workspace of exactly the size the plan asked for.
class CpuLauncher final : public Launcher {
 public:
  Status launch(const Plan& plan, const AttentionTensors& host) override {
    constexpr size_t kGuard = Plan::kWorkspaceAlignment;
    const size_t bytes = plan.workspace_bytes();
    const size_t total = (bytes + 3 * kGuard - 1) / kGuard * kGuard;
    std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(kGuard, total), std::free);
    auto* begin = static_cast<unsigned char*>(memory.get());
    std::memset(begin, 0xff, total);

    const int64_t before = allocations();
    Status status = plan.run(host, {begin + kGuard, bytes}, {});
    if (status) {
      EXPECT_EQ(allocations(), before) << "the run allocated memory";
    }

    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(begin[i], 0xff) << "byte " << i << " before the workspace was written";
      EXPECT_EQ(begin[kGuard + bytes + i], 0xff)
          << "byte " << i << " behind the workspace was written";
    }
    return status;
  }
};

Target cpu_target(std::string label, BackendName name, std::shared_ptr<const Backend> backend) {
  Target t;
  t.label = std::move(label);
  t.name = name;
  t.backend = std::move(backend);
  t.executor = make_openmp_executor();
  t.context.facts = DeviceFacts(PlatformId::cpu);
  t.context.executor = t.executor.get();
  t.launcher = std::make_shared<CpuLauncher>();
  return t;
}

}  // namespace

std::vector<Target> targets() {
  std::vector<Target> out = {
      cpu_target("reference", backend::REFERENCE, backends::make_reference_backend())};
  const simd::Isa best = simd::probe_isa();
  for (simd::Isa isa : simd::kIsas) {
    if (!simd::includes(best, isa)) continue;
    const std::string isa_name(simd::name(isa));
    Target target = cpu_target("cpu_flash_" + isa_name, backend::FLASH_ATTN,
                               backends::make_cpu_flash_backend());
    target.context.facts.set("isa", isa_name);
    // A build without these kernels says so; then there is nothing to test.
    const auto report = target.backend->resolve(target.name, *parse_problem("f32 b1 h1 s1 d1"),
                                                nullptr, target.context);
    if (report.built && report.path == "cpu." + isa_name) out.push_back(std::move(target));
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.label; }

}  // namespace fovea::contract
