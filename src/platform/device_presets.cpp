// Named sets of facts, for questions about machines that are not at hand.
#include <iterator>

#include "fovea/device_facts.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

constexpr DevicePreset kPresets[] = {
    {"h100", "NVIDIA H100, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=90,name=NVIDIA H100,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"h200", "NVIDIA H200, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=90,name=NVIDIA H200,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"b200", "NVIDIA B200, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=100,name=NVIDIA B200,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"a100", "NVIDIA A100, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=80,name=NVIDIA A100,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"l40s", "NVIDIA L40S, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=89,name=NVIDIA L40S,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"rtx4090", "NVIDIA GeForce RTX 4090, CUDA 13.0, cuDNN 9.19", PlatformId::cuda,
     "sm=89,name=NVIDIA GeForce RTX 4090,driver=580.65,cuda=13.0,cudnn=9.19"},
    {"mi300x", "AMD Instinct MI300X with AITER", PlatformId::rocm, "gfx=gfx942,aiter=0.1.7"},
    {"ascend910b", "Huawei Ascend 910B with MindIE SD", PlatformId::npu, "mindiesd=3.1.0"},
    {"cpu", "x86-64 CPU with AVX2", PlatformId::cpu, "isa=avx2"},
};

}  // namespace

const std::vector<DevicePreset>& device_presets() {
  static const std::vector<DevicePreset> presets(std::begin(kPresets), std::end(kPresets));
  return presets;
}

Result<DeviceFacts> preset_facts(std::string_view name) {
  const std::string_view word = text::trim(name);
  std::vector<std::string_view> names;
  for (const DevicePreset& preset : kPresets) {
    if (text::equal_folded(word, preset.name)) return parse_facts(preset.platform, preset.facts);
    names.push_back(preset.name);
  }
  return Error{ErrorCode::invalid_facts,
               text::concat("unknown device preset ", text::quote(word), "; presets are ",
                            text::join(names), text::suggestion(word, names)),
               {}};
}

}  // namespace fovea
