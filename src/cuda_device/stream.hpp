// Streams and events that this project owns: for the program and the tests. Library calls use the
// caller's stream.
#pragma once

#include <memory>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"

namespace fovea::cuda {

// A stream that waits for no other one, not even the default stream. Errors: not_built,
// device_error.
class OwnedStream {
 public:
  static Result<OwnedStream> create(Device device);

  Stream get() const noexcept { return {handle_.get()}; }
  Device device() const noexcept { return device_; }

 private:
  std::shared_ptr<void> handle_;
  Device device_;
};

// Waits until all work on the stream is done; reports what went wrong in it.
Status synchronize(Stream stream);

// Two events around work on a stream.
class Timer {
 public:
  static Result<Timer> create(Device device);

  Status start(Stream stream) const;
  Status stop(Stream stream) const;
  // Waits for the second event.
  Result<double> milliseconds() const;

 private:
  std::shared_ptr<void> start_, stop_;
};

}  // namespace fovea::cuda
