#include "src/cuda_device/device.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/text.hpp"
#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cuda {
namespace {

// The version as nvidia-smi prints it, from NVIDIA's management library.
std::string driver_version() {
  constexpr const char* kUnknown = "unknown";
  const std::unique_ptr<void, int (*)(void*)> nvml(dlopen("libnvidia-ml.so.1", RTLD_NOW),
                                                   [](void* p) { return p ? dlclose(p) : 0; });
  if (nvml == nullptr) return kUnknown;
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml.get(), "nvmlInit_v2"));
  const auto get =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(nvml.get(), "nvmlSystemGetDriverVersion"));
  const auto shutdown = reinterpret_cast<int (*)()>(dlsym(nvml.get(), "nvmlShutdown"));
  if (init == nullptr || get == nullptr || shutdown == nullptr || init() != 0) return kUnknown;
  std::array<char, 96> version{};
  const bool known = get(version.data(), static_cast<unsigned>(version.size())) == 0;
  shutdown();
  return known ? std::string(version.data()) : kUnknown;
}

Result<DeviceInfo> probe(int index) {
  const std::string doing = text::concat("asking for cuda:", index);
  cudaDeviceProp properties{};
  FOVEA_CHECK(check(cudaGetDeviceProperties(&properties, index), doing));
  int runtime = 0;
  FOVEA_CHECK(check(cudaRuntimeGetVersion(&runtime), doing));
  DeviceInfo info;
  info.name = properties.name;
  info.sm = 10 * properties.major + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.driver = driver_version();
  info.runtime = text::concat(runtime / 1000, '.', runtime % 1000 / 10);
  return info;
}

// What was learnt of this process's devices.
class Devices {
 public:
  Result<const DeviceInfo*> info(int index) {
    FOVEA_TRY(const int count, device_count());
    if (index < 0 || index >= count)
      return Error{ErrorCode::device_error,
                   text::concat("there is no cuda:", index, "; this process sees ", count,
                                count == 1 ? " device, cuda:0" : " devices, from cuda:0 on"),
                   {}};
    const std::lock_guard lock(mutex_);
    infos_.resize(static_cast<size_t>(count));
    std::unique_ptr<const DeviceInfo>& known = infos_[static_cast<size_t>(index)];
    if (known == nullptr) {
      FOVEA_TRY(DeviceInfo found, probe(index));
      known = std::make_unique<const DeviceInfo>(std::move(found));
    }
    return known.get();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<const DeviceInfo>> infos_;
};

Status check_pointer(std::string_view name, const TensorView& view, Device device) {
  if (!view.present() || view.data == nullptr || view.numel() == 0) return {};
  cudaPointerAttributes attributes{};
  FOVEA_CHECK(check(cudaPointerGetAttributes(&attributes, view.data), "asking for a pointer"));
  std::string found;
  switch (attributes.type) {
    case cudaMemoryTypeManaged:
      return {};
    case cudaMemoryTypeDevice:
      if (attributes.device == device.index) return {};
      found = to_string(Device{DeviceType::cuda, attributes.device});
      break;
    case cudaMemoryTypeHost:
      found = "the host (pinned)";
      break;
    default:
      found = "the host";
      break;
  }
  return Error{ErrorCode::invalid_tensor,
               text::concat("attention: ", name, ' ', to_string(view), ": it is said to be on ",
                            to_string(device), ", but its memory is on ", found),
               {}};
}

}  // namespace

Result<int> device_count() {
  int count = 0;
  FOVEA_CHECK(check(cudaGetDeviceCount(&count), "looking for devices"));
  if (count == 0) return runtime_error(cudaErrorNoDevice, "looking for devices");
  return count;
}

Result<const DeviceInfo*> device_info(int index) {
  static Devices devices;
  return devices.info(index);
}

Status check_pointers(const AttentionTensors& t, Device device) {
  const std::pair<std::string_view, const TensorView*> tensors[] = {
      {"q", &t.q},
      {"k", &t.k},
      {"v", &t.v},
      {"out", &t.out},
      {"lse", &t.lse},
      {"mask", &t.mask},
      {"kv_lengths", &t.kv_lengths},
      {"cu_seqlens_q", &t.cu_seqlens_q},
      {"cu_seqlens_kv", &t.cu_seqlens_kv}};
  for (const auto& [name, view] : tensors) FOVEA_CHECK(check_pointer(name, *view, device));
  return {};
}

}  // namespace fovea::cuda
