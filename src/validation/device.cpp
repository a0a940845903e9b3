#include "src/validation/device.hpp"

#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"
#include "src/cuda_device/device_tensors.hpp"
#include "src/cuda_device/graph.hpp"
#include "src/cuda_device/stream.hpp"
#include "src/validation/accessed_device.hpp"

namespace fovea::validation {

namespace {

constexpr TensorView AttentionTensors::*kInputs[] = {&AttentionTensors::q,
                                                     &AttentionTensors::k,
                                                     &AttentionTensors::v,
                                                     &AttentionTensors::mask,
                                                     &AttentionTensors::kv_lengths,
                                                     &AttentionTensors::cu_seqlens_q,
                                                     &AttentionTensors::cu_seqlens_kv,
                                                     &AttentionTensors::block_counts,
                                                     &AttentionTensors::block_indices,
                                                     &AttentionTensors::block_partial};
constexpr TensorView AttentionTensors::*kOutputs[] = {&AttentionTensors::out,
                                                      &AttentionTensors::lse};

void copy(const TensorView& from, const TensorView& to) {
  if (to.present() && to.data != from.data) {
    std::memcpy(to.data, from.data, static_cast<size_t>(extent_bytes(from)));
  }
}

// As the system calls the processor; its instruction set where it does not say.
std::string processor_name(const DeviceFacts& facts) {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    return std::string(text::trim(std::string_view(line).substr(colon + 1)));
  }
  return text::concat("CPU with ", facts.get("isa").value_or("generic"));
}

// Host memory is device memory, and a recording is the plan with its workspace.
class CpuDevice final : public RunDevice {
 public:
  explicit CpuDevice(DeviceFacts facts) : facts_(std::move(facts)) {}

  const DeviceFacts& facts() const noexcept override { return facts_; }
  Stream stream() const noexcept override { return {}; }
  std::string name() const override { return processor_name(facts_); }
  std::string driver() const override { return {}; }
  bool allocates() const noexcept override { return true; }

  Result<AttentionTensors> stage(const AttentionTensors& host) override { return staged_ = host; }
  Status restage(const AttentionTensors& host) override {
    for (const auto input : kInputs) copy(host.*input, staged_.*input);
    return {};
  }
  Status fetch(const AttentionTensors& host) override {
    for (const auto output : kOutputs) copy(staged_.*output, host.*output);
    return {};
  }
  Result<std::string> damage(const AttentionTensors& host) override {
    for (const auto input : kInputs) {
      const TensorView& now = staged_.*input;
      const TensorView& before = host.*input;
      if (!now.present()) continue;
      const auto bytes = static_cast<size_t>(extent_bytes(now));
      if (std::memcmp(now.data, before.data, bytes) != 0)
        return std::string("an input was written");
    }
    return std::string();
  }

  bool captures() const noexcept override { return false; }
  Status run(const Plan& plan, const AttentionTensors& tensors) override {
    FOVEA_CHECK(record(plan, tensors));
    return replay();
  }
  Status record(const Plan& plan, const AttentionTensors& tensors) override {
    plan_ = &plan;
    recorded_ = tensors;
    const auto bytes = static_cast<int64_t>(plan.workspace_bytes() + Plan::kWorkspaceAlignment);
    FOVEA_TRY(scratch_, OwnedTensor::allocate(kU8, std::span(&bytes, 1)));
    return {};
  }
  Status replay() override {
    void* data = scratch_.view().data;
    auto space = static_cast<size_t>(scratch_.view().numel());
    std::align(Plan::kWorkspaceAlignment, plan_->workspace_bytes(), data, space);
    return plan_->run(recorded_, {data, plan_->workspace_bytes()}, {});
  }

 private:
  DeviceFacts facts_;
  AttentionTensors staged_, recorded_;
  const Plan* plan_ = nullptr;
  OwnedTensor scratch_;
};

// Copies of the tensors on a stream of its own; a recording is a graph.
class CudaDevice final : public RunDevice {
 public:
  CudaDevice(DeviceFacts facts, Device device, cuda::OwnedStream stream)
      : facts_(std::move(facts)), device_(device), stream_(std::move(stream)) {}

  const DeviceFacts& facts() const noexcept override { return facts_; }
  Stream stream() const noexcept override { return stream_.get(); }
  std::string name() const override { return std::string(facts_.get("name").value_or("unknown")); }
  std::string driver() const override {
    return std::string(facts_.get("driver").value_or("unknown"));
  }
  bool allocates() const noexcept override { return true; }

  Result<AttentionTensors> stage(const AttentionTensors& host) override {
    graph_.reset();
    FOVEA_TRY(cuda::DeviceTensors copies,
              cuda::DeviceTensors::upload(host, device_, stream_.get()));
    copies_ = std::move(copies);
    return copies_->tensors();
  }
  Status restage(const AttentionTensors& host) override { return copies_->refill(host); }
  Status fetch(const AttentionTensors& host) override { return copies_->download(host); }
  Result<std::string> damage(const AttentionTensors& host) override {
    return copies_->damage(host);
  }

  bool captures() const noexcept override { return true; }
  Status run(const Plan& plan, const AttentionTensors& tensors) override {
    const size_t bytes = plan.workspace_bytes();
    FOVEA_TRY(workspace_, cuda::Memory::allocate(bytes, device_, stream_.get()));
    return plan.run(tensors, {workspace_.data(), bytes}, stream_.get());
  }
  Status record(const Plan& plan, const AttentionTensors& tensors) override {
    // The first run outside a capture may load code.
    FOVEA_CHECK(run(plan, tensors));
    FOVEA_TRY(
        graph_, cuda::Graph::capture(stream_.get(), [&] {
          return plan.run(tensors, {workspace_.data(), plan.workspace_bytes()}, stream_.get());
        }));
    return {};
  }
  Status replay() override { return graph_->launch(stream_.get()); }

 private:
  DeviceFacts facts_;
  Device device_;
  cuda::OwnedStream stream_;
  std::optional<cuda::DeviceTensors> copies_;
  cuda::Memory workspace_;
  std::optional<cuda::Graph> graph_;
};

std::string platform_names() {
  std::string list;
  for (const PlatformId id : {PlatformId::cpu, PlatformId::cuda, PlatformId::rocm, PlatformId::npu,
                              PlatformId::xpu, PlatformId::musa})
    list += text::concat(list.empty() ? "" : ", ", fovea::name(id),
                         id == PlatformId::cpu ? "" : "[:N]");
  return list + ", or one that a plugin adds";
}

}  // namespace

Result<std::unique_ptr<RunDevice>> open_cpu() {
  FOVEA_TRY(DeviceFacts facts, probe_cpu());
  return std::unique_ptr<RunDevice>(std::make_unique<CpuDevice>(std::move(facts)));
}

Result<std::unique_ptr<RunDevice>> open_cuda(Device device) {
  FOVEA_TRY(DeviceFacts facts, probe_cuda(device.index));
  FOVEA_TRY(cuda::OwnedStream stream, cuda::OwnedStream::create(device));
  return std::unique_ptr<RunDevice>(
      std::make_unique<CudaDevice>(std::move(facts), device, std::move(stream)));
}

Result<std::unique_ptr<RunDevice>> open_device(const std::string& text,
                                               const fovea_device_access* access) {
  const size_t colon = text.find(':');
  const auto platform = parse_platform(text::trim(std::string_view(text).substr(0, colon)));
  std::optional<int64_t> index = 0;
  if (colon != std::string::npos) index = text::parse_integer(text.substr(colon + 1));
  const bool numbered_cpu = platform && *platform == PlatformId::cpu && colon != std::string::npos;
  if (!platform || !index || *index < 0 || *index > INT32_MAX || numbered_cpu)
    return Error{ErrorCode::invalid_argument,
                 "device " + text::quote(text) +
                     " is none to validate on (accepted: " + platform_names() + ")",
                 {}};
  const auto number = static_cast<int32_t>(*index);
  if (access != nullptr) return open_accessed(*platform, number, *access);
  if (*platform == PlatformId::cpu) return open_cpu();
  if (*platform == PlatformId::cuda) return open_cuda({DeviceType::cuda, number});
  return open_accessed(*platform, number);
}

}  // namespace fovea::validation
