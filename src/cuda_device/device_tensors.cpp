#include "src/cuda_device/device_tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "src/core/tensor_members.hpp"
#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"

namespace fovea::cuda {
namespace {

constexpr size_t kGuard = 256;           // also the largest alignment that is kept
constexpr unsigned char kPoison = 0xff;  // NaN in every float type

bool poisoned(const unsigned char* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char byte) { return byte == kPoison; });
}

}  // namespace

Result<DeviceTensors> DeviceTensors::upload(const AttentionTensors& host, Device device,
                                            Stream stream, Alignment alignment) {
  DeviceTensors result;
  result.stream_ = stream;
  result.tensors_ = host;
  for (const TensorMember& member : kTensorMembers) {
    const TensorView& from = host.*member.view;
    if (!from.present()) continue;
    FOVEA_CHECK(check_memory(member.name, from));
    TensorView& to = result.tensors_.*member.view;
    const auto bytes = static_cast<size_t>(extent_bytes(from));
    const size_t shift = reinterpret_cast<uintptr_t>(from.data) % kGuard;
    const size_t offset = kGuard + (alignment == Alignment::kept ? shift : 0);
    FOVEA_TRY(Memory memory, Memory::allocate(offset + bytes + kGuard, device, stream));
    FOVEA_CHECK(fill(memory.data(), kPoison, memory.bytes(), stream));
    to.device = device;
    to.data = static_cast<char*>(memory.data()) + offset;
    if (!member.output) FOVEA_CHECK(copy_to_device(to.data, from.data, bytes, stream));
    result.copies_.push_back(
        {member.name, member.view, member.output, offset, bytes, std::move(memory)});
  }
  return result;
}

Status DeviceTensors::refill(const AttentionTensors& host) const {
  for (const Copy& copy : copies_)
    if (!copy.output)
      FOVEA_CHECK(
          copy_to_device((tensors_.*copy.view).data, (host.*copy.view).data, copy.bytes, stream_));
  return {};
}

Status DeviceTensors::download(const AttentionTensors& host) const {
  for (const Copy& copy : copies_)
    if (copy.output)
      FOVEA_CHECK(
          copy_to_host((host.*copy.view).data, (tensors_.*copy.view).data, copy.bytes, stream_));
  return {};
}

Result<std::string> DeviceTensors::damage(const AttentionTensors& host) const {
  for (const Copy& copy : copies_) {
    std::vector<unsigned char> now(copy.memory.bytes());
    FOVEA_CHECK(copy_to_host(now.data(), copy.memory.data(), now.size(), stream_));
    if (!poisoned(now.data(), copy.offset))
      return text::concat("memory before ", copy.name, " was written");
    if (!poisoned(now.data() + copy.offset + copy.bytes, kGuard))
      return text::concat("memory behind ", copy.name, " was written");
    if (!copy.output && copy.bytes > 0 &&
        std::memcmp(now.data() + copy.offset, (host.*copy.view).data, copy.bytes) != 0)
      return text::concat(copy.name, " was written");
  }
  return std::string();
}

}  // namespace fovea::cuda
