#include "src/cuda_device/memory.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "src/core/text.hpp"
#include "src/cuda_device/device_guard.hpp"
#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cuda {
namespace {

// Freed memory that a pool keeps instead of giving it back when a stream is waited for.
constexpr uint64_t kKeptBytes = uint64_t{1} << 30;

cudaStream_t handle(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }

// One pool for each device, made on first use and never destroyed: memory may be freed until the
// process ends.
class Pools {
 public:
  Result<cudaMemPool_t> get(int device) {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<size_t>(device);
    if (index >= pools_.size()) pools_.resize(index + 1);
    if (pools_[index] == nullptr) {
      FOVEA_TRY(pools_[index], create(device));
    }
    return pools_[index];
  }

 private:
  static Result<cudaMemPool_t> create(int device) {
    constexpr std::string_view kDoing = "creating a memory pool";
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPool_t pool = nullptr;
    FOVEA_CHECK(check(cudaMemPoolCreate(&pool, &properties), kDoing));
    uint64_t kept = kKeptBytes;
    FOVEA_CHECK(
        check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept), kDoing));
    return pool;
  }

  std::mutex mutex_;
  std::vector<cudaMemPool_t> pools_;
};

Error allocation_error(int code, size_t bytes, Device device) {
  Error error =
      runtime_error(code, text::concat("allocating ", bytes, " bytes on ", to_string(device)));
  size_t free = 0;
  size_t total = 0;
  if (error.code == ErrorCode::out_of_memory && cudaMemGetInfo(&free, &total) == cudaSuccess)
    error.message += text::concat("; ", free, " of ", total, " bytes are free");
  return error;
}

// Copies and fills touch pool memory, which only its own device may reach.
int device_of(const void* memory) noexcept {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
      attributes.type == cudaMemoryTypeDevice)
    return attributes.device;
  cudaGetLastError();
  int current = 0;
  return cudaGetDevice(&current) == cudaSuccess ? current : 0;
}

}  // namespace

Result<Memory> Memory::allocate(size_t bytes, Device device, Stream stream) {
  static Pools& pools = *new Pools;
  Memory memory;
  memory.device_ = device;
  memory.stream_ = stream;
  if (bytes == 0) return memory;
  const DeviceGuard guard(device.index);
  FOVEA_CHECK(check(guard.error(), "choosing a device"));
  FOVEA_TRY(const cudaMemPool_t pool, pools.get(device.index));
  const cudaError_t error = cudaMallocFromPoolAsync(&memory.data_, bytes, pool, handle(stream));
  if (error != cudaSuccess) {
    memory.data_ = nullptr;
    return allocation_error(error, bytes, device);
  }
  memory.bytes_ = bytes;
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      stream_(other.stream_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
    stream_ = other.stream_;
  }
  return *this;
}

Memory::~Memory() { free(); }

void Memory::free() noexcept {
  if (data_ == nullptr) return;
  const DeviceGuard guard(device_.index);
  // A failure means that the device is lost, and its memory with it.
  if (cudaFreeAsync(data_, handle(stream_)) != cudaSuccess) cudaGetLastError();
  data_ = nullptr;
}

Result<std::shared_ptr<void>> allocate_lasting(size_t bytes, Device device) {
  const DeviceGuard guard(device.index);
  FOVEA_CHECK(check(guard.error(), "choosing a device"));
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error != cudaSuccess) return allocation_error(error, bytes, device);
  return std::shared_ptr<void>(data, [device](void* memory) {
    const DeviceGuard current(device.index);
    if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
  });
}

Status copy_to_device(void* device, const void* host, size_t bytes, Stream stream) {
  constexpr std::string_view kDoing = "copying to the device";
  if (bytes == 0) return {};
  const DeviceGuard guard(device_of(device));
  FOVEA_CHECK(check(guard.error(), kDoing));
  FOVEA_CHECK(
      check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle(stream)), kDoing));
  return check(cudaStreamSynchronize(handle(stream)), kDoing);
}

Status copy_to_host(void* host, const void* device, size_t bytes, Stream stream) {
  constexpr std::string_view kDoing = "copying from the device";
  if (bytes == 0) return {};
  const DeviceGuard guard(device_of(device));
  FOVEA_CHECK(check(guard.error(), kDoing));
  FOVEA_CHECK(
      check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle(stream)), kDoing));
  return check(cudaStreamSynchronize(handle(stream)), kDoing);
}

Status fill(void* device, unsigned char value, size_t bytes, Stream stream) {
  constexpr std::string_view kDoing = "filling device memory";
  if (bytes == 0) return {};
  const DeviceGuard guard(device_of(device));
  FOVEA_CHECK(check(guard.error(), kDoing));
  return check(cudaMemsetAsync(device, value, bytes, handle(stream)), kDoing);
}

}  // namespace fovea::cuda
