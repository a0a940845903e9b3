#include "fovea/device.hpp"

#include <limits>

#include "src/core/text.hpp"

namespace fovea {
namespace {

struct DeviceName {
  DeviceType type;
  std::string_view text;
};
constexpr DeviceName kNames[] = {{DeviceType::cpu, "cpu"},
                                 {DeviceType::cuda, "cuda"},
                                 {DeviceType::cuda_host, "cuda_host"},
                                 {DeviceType::rocm, "rocm"},
                                 {DeviceType::extension, "extension"},
                                 {DeviceType::oneapi, "oneapi"}};

}  // namespace

std::string to_string(Device device) {
  for (const DeviceName& entry : kNames) {
    if (entry.type != device.type) continue;
    std::string out(entry.text);
    const bool numbered = device.type != DeviceType::cpu && device.type != DeviceType::cuda_host;
    return numbered ? text::concat(out, ':', device.index) : out;
  }
  return text::concat("unknown device ", static_cast<int32_t>(device.type), ':', device.index);
}

Result<Device> parse_device(std::string_view text) {
  const std::string word = text::fold(text::trim(text));
  if (word == "cpu") return kCpu;
  if (word == "cuda") return Device{DeviceType::cuda, 0};
  if (word.starts_with("cuda:")) {
    const std::optional<int64_t> index = text::parse_integer(std::string_view(word).substr(5));
    if (index && *index >= 0 && *index <= std::numeric_limits<int32_t>::max())
      return Device{DeviceType::cuda, static_cast<int32_t>(*index)};
  }
  return Error{
      ErrorCode::invalid_argument,
      text::concat("device ", text::quote(text), " is not known (accepted: cpu, cuda, cuda:N)"),
      {}};
}

}  // namespace fovea
