// Where a validation run takes place: brings tensors to the device and back, records a call and
// replays it.
#pragma once

#include <memory>
#include <string>

#include "fovea/attention.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "tools/fovea/arguments.hpp"

namespace fovea::cli {

// One device. Not thread-safe.
class ContractDevice {
 public:
  virtual ~ContractDevice() = default;

  virtual const DeviceFacts& facts() const noexcept = 0;
  virtual Device device() const noexcept = 0;
  virtual Stream stream() const noexcept = 0;
  // What it is called; its driver, empty when there is none.
  virtual std::string name() const = 0;
  virtual std::string driver() const = 0;

  // The tensors of a call on the device, outputs filled with NaN. `host` outlives them.
  virtual Result<AttentionTensors> stage(const AttentionTensors& host) = 0;
  // Other inputs of the same shapes at the same addresses.
  virtual Status restage(const AttentionTensors& host) = 0;
  // Brings the outputs into host.out and host.lse, after all work is done.
  virtual Status fetch(const AttentionTensors& host) = 0;
  // What was written and must not be, as a sentence; empty: nothing. `host` was staged last.
  virtual Result<std::string> damage(const AttentionTensors& host) = 0;

  // Whether record() captures the call; else it is remembered and run again.
  virtual bool captures() const noexcept = 0;
  // One run of the plan on the staged tensors. `plan` outlives the recording.
  virtual Status record(const Plan& plan) = 0;
  virtual Status replay() = 0;
};

// The device that --device names. Errors: those of DeviceArguments::target.
Result<std::unique_ptr<ContractDevice>> open_contract_device(const DeviceArguments& arguments);

}  // namespace fovea::cli
