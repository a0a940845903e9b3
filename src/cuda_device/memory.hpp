// Device memory in the order of a stream, from a pool that this process keeps for each device.
#pragma once

#include <cstddef>
#include <memory>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"

namespace fovea::cuda {

// Memory of a device. Usable by work that follows its allocation on the stream; freed in the order
// of that stream, which must live as long.
class Memory {
 public:
  // The pool keeps up to 1 GiB of what was freed. 256-byte aligned. Zero bytes take nothing and
  // have no address. Inside a stream capture the memory belongs to the graph. Errors: not_built,
  // out_of_memory, device_error. Thread-safe.
  static Result<Memory> allocate(size_t bytes, Device device, Stream stream);

  Memory() = default;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  void free() noexcept;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  Stream stream_;
};

// Memory that work on any stream may use while something holds it. Allocating and freeing wait for
// the device. Errors: not_built, out_of_memory, device_error.
Result<std::shared_ptr<void>> allocate_lasting(size_t bytes, Device device);

// Copies in the order of the stream and waits for it. Pageable host memory is fine.
Status copy_to_device(void* device, const void* host, size_t bytes, Stream stream);
Status copy_to_host(void* host, const void* device, size_t bytes, Stream stream);
// Sets every byte, in the order of the stream. Does not wait.
Status fill(void* device, unsigned char value, size_t bytes, Stream stream);

}  // namespace fovea::cuda
