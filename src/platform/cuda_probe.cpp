#include "fovea/device_facts.hpp"
#include "src/core/bound_packages.hpp"
#include "src/core/build_info.hpp"
#include "src/cuda_device/cudnn_library.hpp"
#include "src/cuda_device/device.hpp"

namespace fovea {

Result<DeviceFacts> probe_cuda(int index) {
  FOVEA_TRY(const cuda::DeviceInfo* const info, cuda::device_info(index));
  DeviceFacts facts(PlatformId::cuda);
  facts.set("sm", std::to_string(info->sm));
  facts.set("name", info->name);
  facts.set("driver", info->driver);
  facts.set("cuda", info->runtime);
  if (const auto cudnn = cuda::load_cudnn()) facts.set("cudnn", (*cudnn)->version);
  const std::string embedded = build_info().cuda_embedded;
  facts.set("kernels", embedded.empty() ? "none" : embedded);
  for (const auto& [package, version] : bound_packages())
    for (const FactKey& known : fact_keys(PlatformId::cuda))
      if (known.key == package) facts.set(package, version);
  return facts;
}

}  // namespace fovea
