// Where a validation run takes place: brings tensors to the device and back, runs plans there,
// records and replays them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fovea/attention.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/plugin.h"

namespace fovea::validation {

// One device. Not thread-safe.
class RunDevice {
 public:
  virtual ~RunDevice() = default;

  virtual const DeviceFacts& facts() const noexcept = 0;
  virtual Stream stream() const noexcept = 0;
  // What it is called; its driver, empty when there is none.
  virtual std::string name() const = 0;
  virtual std::string driver() const = 0;
  // Whether a layer can allocate outputs there itself.
  virtual bool allocates() const noexcept = 0;

  // The tensors of a call on the device, outputs filled with NaN. `host` outlives them.
  virtual Result<AttentionTensors> stage(const AttentionTensors& host) = 0;
  // Other inputs of the same shapes at the same addresses.
  virtual Status restage(const AttentionTensors& host) = 0;
  // Brings the outputs into host.out and host.lse, after all work is done.
  virtual Status fetch(const AttentionTensors& host) = 0;
  // What was written and must not be, as a sentence; empty: nothing. `host` was staged last.
  virtual Result<std::string> damage(const AttentionTensors& host) = 0;

  // One run with a workspace of the device's.
  virtual Status run(const Plan& plan, const AttentionTensors& tensors) = 0;
  // Whether record() captures the call; else it is remembered and run again.
  virtual bool captures() const noexcept = 0;
  // One run of the plan on these tensors, for replay(). `plan` outlives the recording.
  virtual Status record(const Plan& plan, const AttentionTensors& tensors) = 0;
  virtual Status replay() = 0;
};

// This machine's CPU, or one of its CUDA devices. Errors: those of the probes.
Result<std::unique_ptr<RunDevice>> open_cpu();
Result<std::unique_ptr<RunDevice>> open_cuda(Device device);

// "cpu", "cuda[:N]", or PLATFORM[:N] of any other platform through `access`, or where that is null
// through what a loaded plugin gives. Errors: invalid_argument for what names no device;
// not_available when nothing gives access, with what to do.
Result<std::unique_ptr<RunDevice>> open_device(const std::string& text,
                                               const fovea_device_access* access = nullptr);

}  // namespace fovea::validation
