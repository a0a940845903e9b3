// The tensors of a call on a device, copied from and to host memory: what the program and the tests
// run on.
#pragma once

#include <string>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"
#include "src/cuda_device/memory.hpp"

namespace fovea::cuda {

class DeviceTensors {
 public:
  enum class Alignment { kept, best };

  // Copies everything between the first and the last element of every input, so strides and the
  // bytes in the gaps stay, and with Alignment::kept also how the addresses are aligned. Bytes
  // around the tensors, and the outputs, are NaN. The stream must live as long. Errors: not_built,
  // out_of_memory, device_error.
  static Result<DeviceTensors> upload(const AttentionTensors& host, Device device, Stream stream,
                                      Alignment alignment = Alignment::kept);

  const AttentionTensors& tensors() const noexcept { return tensors_; }

  // Copies other inputs of the same shapes and strides over the uploaded ones, at the same
  // addresses. Waits for the stream.
  Status refill(const AttentionTensors& host) const;

  // Copies out and lse into `host`, the tensors that were uploaded or their like. Waits for the
  // stream.
  Status download(const AttentionTensors& host) const;

  // What was written and must not be, as a sentence: an input, or bytes around a tensor. Empty:
  // nothing. `host` are the tensors that were uploaded last.
  Result<std::string> damage(const AttentionTensors& host) const;

 private:
  struct Copy {
    const char* name;
    TensorView AttentionTensors::*view;
    bool output;
    size_t offset;  // of the first element in `memory`
    size_t bytes;   // between the first and the last element
    Memory memory;
  };

  AttentionTensors tensors_;
  std::vector<Copy> copies_;
  Stream stream_;
};

}  // namespace fovea::cuda
