// Groups of flags that several verbs share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/device.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/executor.hpp"
#include "fovea/metadata.hpp"
#include "fovea/model_preset.hpp"
#include "fovea/problem.hpp"
#include "fovea/schedule.hpp"
#include "tools/fovea/flags.hpp"

namespace fovea::cli {

// --config and --backend.
struct ConfigArguments {
  std::optional<std::string> config;
  std::optional<std::string> backend;

  void declare(Flags& flags);
  // Flags over --config over --backend over FOVEA_BACKEND.
  Result<AttentionConfig> build(const std::vector<ConfigFlag>& config_flags) const;
};

// --schedule and --request: which configuration applies when, and what one request changes of it.
struct ScheduleArguments {
  std::optional<std::string> schedule;
  std::optional<std::string> request;

  void declare(Flags& flags);
  // Validated; nothing without --schedule.
  Result<std::optional<AttentionSchedule>> build() const;
};

// --calibration and --layer-name: what a checkpoint says of the sparsity of one layer.
struct CalibrationArguments {
  std::optional<std::string> calibration;
  std::optional<std::string> layer;

  void declare(Flags& flags);
  // Fills it into the entries that ask for a target_sparsity; does nothing without the flags.
  Status apply(AttentionConfig& config, std::optional<AttentionSchedule>& schedule) const;
};

// --metadata: what is stated about the masks and lengths of a call.
struct MetadataArguments {
  std::optional<std::string> metadata;

  void declare(Flags& flags);
  // Nothing without the flag.
  Result<std::optional<AttentionMetadata>> build() const;
};

// --platform, --facts and --device PRESET|FILE|PLATFORM[:N]: the device to judge for, this
// machine's CPU by default.
struct FactsArguments {
  std::optional<std::string> platform;
  std::optional<std::string> facts;
  std::optional<std::string> device;
  std::optional<std::string> cudnn;

  void declare(Flags& flags);
  struct Judged {
    DeviceFacts facts;
    bool local = false;   // they describe this machine
    Device where = kCpu;  // which of its devices
  };
  Result<Judged> read() const;

 private:
  Result<Judged> read_local(PlatformId id, int index) const;
};

// --device cpu|cuda[:N] and --threads: the device to run on.
struct DeviceArguments {
  std::string device = "cpu";
  std::optional<std::string> cudnn;
  int64_t threads = 0;

  void declare(Flags& flags);
  // The device, which is there. Errors: invalid_argument, not_built, device_error.
  Result<Device> target() const;
  Result<std::unique_ptr<Executor>> executor() const;
};

// --model PRESET|FILE|JSON at a size.
Result<ModelDescription> read_model(const std::string& argument, ModelSize size);

// "L,R" with -1 for unbounded. Error invalid_argument.
Result<Window> parse_window(const std::string& text);

// The type of q, k and v: f32, f16 or bf16. Error invalid_argument.
Result<DType> parse_input_dtype(const std::string& text);

// A dense call of one query and one key, to judge a type and a head size.
Problem plain_problem(DType dtype, std::optional<int64_t> head_dim);

// Error invalid_argument unless low <= value.
Status at_least(const std::string& flag, int64_t value, int64_t low);

}  // namespace fovea::cli
