// The CUDA device layer of a build without CUDA.
#include "src/cuda_device/device.hpp"
#include "src/cuda_device/graph.hpp"
#include "src/cuda_device/memory.hpp"
#include "src/cuda_device/stream.hpp"

namespace fovea::cuda {
namespace {

Error not_built() {
  return {
      ErrorCode::not_built,
      "this binary was built without CUDA and runs on the CPU only; rebuild with ./dev build "
      "--cuda auto",
      {{ReasonCode::not_built, "device", "cuda", "cpu", "rebuild with ./dev build --cuda auto"}}};
}

}  // namespace

Result<int> device_count() { return not_built(); }
Result<const DeviceInfo*> device_info(int) { return not_built(); }
Status check_pointers(const AttentionTensors&, Device) { return not_built(); }

Result<Memory> Memory::allocate(size_t, Device, Stream) { return not_built(); }
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;
void Memory::free() noexcept {}
Result<std::shared_ptr<void>> allocate_lasting(size_t, Device) { return not_built(); }
Status copy_to_device(void*, const void*, size_t, Stream) { return not_built(); }
Status copy_to_host(void*, const void*, size_t, Stream) { return not_built(); }
Status fill(void*, unsigned char, size_t, Stream) { return not_built(); }

Result<OwnedStream> OwnedStream::create(Device) { return not_built(); }
Status synchronize(Stream) { return not_built(); }
Result<Timer> Timer::create(Device) { return not_built(); }
Status Timer::start(Stream) const { return not_built(); }
Status Timer::stop(Stream) const { return not_built(); }
Result<double> Timer::milliseconds() const { return not_built(); }

Result<Graph> Graph::capture(Stream, const std::function<Status()>&) { return not_built(); }
Status Graph::launch(Stream) const { return not_built(); }

}  // namespace fovea::cuda
