#include "tests/contract/target.hpp"

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "fovea/executor.hpp"
#include "src/backends/block_sparse/backend.hpp"
#include "src/backends/block_sparse_sm90/backend.hpp"
#include "src/backends/cpu_flash/backend.hpp"
#include "src/backends/cuda_sdpa/backend.hpp"
#include "src/backends/cudnn/backend.hpp"
#include "src/backends/flash_sm80/backend.hpp"
#include "src/backends/flash_sm90/backend.hpp"
#include "src/backends/reference/backend.hpp"
#include "src/cuda_device/device_tensors.hpp"
#include "src/cuda_device/stream.hpp"
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

// A target for every instruction set of this machine whose kernels are in the binary.
void add_cpu_targets(const std::string& label, BackendName name,
                     const std::shared_ptr<const Backend>& backend, const char* plain,
                     std::vector<Target>& out) {
  const simd::Isa best = simd::probe_isa();
  for (simd::Isa isa : simd::kIsas) {
    if (!simd::includes(best, isa)) continue;
    const std::string isa_name(simd::name(isa));
    Target target = cpu_target(label + isa_name, name, backend);
    target.context.facts.set("isa", isa_name);
    // A build without these kernels says so; then there is nothing to test. AMX has no f32
    // products.
    const std::string problem = (isa == simd::Isa::amx ? "bf16" : "f32") + std::string(plain);
    const auto report =
        target.backend->resolve(target.name, *parse_problem(problem), nullptr, target.context);
    if (report.built && report.path == "cpu." + isa_name) out.push_back(std::move(target));
  }
}

// Runs on copies in device memory, twice: the first run may load the kernel.
class CudaLauncher final : public Launcher {
 public:
  // A vendor library may allocate host memory in a run.
  CudaLauncher(Device device, cuda::OwnedStream stream, bool may_allocate)
      : device_(device), stream_(std::move(stream)), may_allocate_(may_allocate) {}

  Status launch(const Plan& plan, const AttentionTensors& host) override {
    constexpr size_t kGuard = Plan::kWorkspaceAlignment;
    const Stream stream = stream_.get();
    FOVEA_TRY(const cuda::DeviceTensors copies, cuda::DeviceTensors::upload(host, device_, stream));
    const size_t bytes = plan.workspace_bytes();
    FOVEA_TRY(const cuda::Memory memory,
              cuda::Memory::allocate(bytes + 2 * kGuard, device_, stream));
    FOVEA_CHECK(cuda::fill(memory.data(), 0xff, memory.bytes(), stream));
    const Workspace workspace{static_cast<char*>(memory.data()) + kGuard, bytes};

    FOVEA_CHECK(plan.run(copies.tensors(), workspace, stream));
    const int64_t before = allocations();
    FOVEA_CHECK(plan.run(copies.tensors(), workspace, stream));
    if (!may_allocate_) {
      EXPECT_EQ(allocations(), before) << "the run allocated memory";
    }
    FOVEA_CHECK(cuda::synchronize(stream));

    std::vector<unsigned char> after(memory.bytes());
    FOVEA_CHECK(cuda::copy_to_host(after.data(), memory.data(), after.size(), stream));
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(after[i], 0xff) << "byte " << i << " before the workspace was written";
      EXPECT_EQ(after[kGuard + bytes + i], 0xff)
          << "byte " << i << " behind the workspace was written";
    }
    FOVEA_TRY(const std::string damage, copies.damage(host));
    EXPECT_EQ(damage, "");
    return copies.download(host);
  }

 private:
  Device device_;
  cuda::OwnedStream stream_;
  bool may_allocate_;
};

// The backends with CUDA kernels. A target is one of them on the device.
struct CudaBackend {
  const char* label;
  BackendName name;
  std::shared_ptr<const Backend> (*make)();
  DType dtype;
  bool may_allocate;
  bool allow_copy = false;
};
constexpr CudaBackend kCudaBackends[] = {
    {"cuda_flash_sm90", backend::FLASH_ATTN_3, backends::make_flash_sm90_backend, kBF16, false},
    {"cuda_flash_sm80", backend::FLASH_ATTN_2, backends::make_flash_sm80_backend, kBF16, false},
    {"cuda_flash_sm80_f32", backend::FLASH_ATTN_2, backends::make_flash_sm80_backend, kF32, false},
    {"cuda_sdpa", backend::TORCH_SDPA, backends::make_cuda_sdpa_backend, kF32, false},
    {"cuda_cudnn", backend::CUDNN_ATTN, backends::make_cudnn_backend, kBF16, true},
    {"cuda_cudnn_copies", backend::CUDNN_ATTN, backends::make_cudnn_backend, kBF16, true, true},
};

constexpr CudaBackend kCudaBlockBackends[] = {
    {"cuda_block_sparse_sm90", backend::BLOCK_SPARSE_ATTN, backends::make_block_sparse_sm90_backend,
     kBF16, false},
};

// `plain`: what a backend of the rows must run, behind its type.
void add_cuda_targets(std::span<const CudaBackend> rows, const std::string& plain,
                      std::vector<Target>& out) {
  constexpr Device kDevice{DeviceType::cuda, 0};
  const auto facts = probe_cuda(kDevice.index);
  if (!facts) return;
  auto stream = cuda::OwnedStream::create(kDevice);
  if (!stream) return;
  for (const CudaBackend& row : rows) {
    Target t = cpu_target(row.label, row.name, row.make());
    t.context.facts = *facts;
    t.context.device = kDevice;
    t.launcher = std::make_shared<CudaLauncher>(kDevice, *stream, row.may_allocate);
    t.whole_contract = false;
    t.host_tensors = false;
    t.dtype = row.dtype;
    if (row.allow_copy) {
      t.entry.emplace();
      t.entry->backend = row.name;
      t.entry->allow_copy = true;
    }
    const Problem problem = *parse_problem(std::string(name(row.dtype)) + plain);
    if (t.backend->resolve(t.name, problem, nullptr, t.context).support !=
        SupportStatus::unsupported)
      out.push_back(std::move(t));
  }
}

}  // namespace

std::vector<Target> targets() {
  std::vector<Target> out = {
      cpu_target("reference", backend::REFERENCE, backends::make_reference_backend())};
  add_cpu_targets("cpu_flash_", backend::FLASH_ATTN, backends::make_cpu_flash_backend(),
                  " b1 h1 s1 d1", out);
  add_cuda_targets(kCudaBackends, " b1 h1 s64 d64", out);
  return out;
}

std::vector<Target> block_targets() {
  std::vector<Target> out;
  add_cpu_targets("block_sparse_", backend::BLOCK_SPARSE_ATTN,
                  backends::make_block_sparse_backend(), " b1 h1 s1 d1 sparse=random", out);
  add_cuda_targets(kCudaBlockBackends, " b1 h1 s64 d64 sparse=random", out);
  for (Target& target : out) {
    target.entry.emplace().backend = target.name;
    target.entry->block_sparse.emplace().selection = "mask";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.label; }

}  // namespace fovea::contract
