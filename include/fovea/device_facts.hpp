// What is known of a device and its software, probed once or given as text. Policies read nothing
// else.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/error.hpp"

namespace fovea {

enum class PlatformId : uint8_t { cpu, cuda, rocm, npu, xpu, musa };

// "cpu", "cuda", ... Thread-safe; static storage.
FOVEA_API std::string_view name(PlatformId platform) noexcept;
// Case-insensitive. Error invalid_facts lists the platforms.
FOVEA_API Result<PlatformId> parse_platform(std::string_view text);

// A dotted version. Text after the third number is ignored ("2.8.0.post1+cu13" is 2.8.0).
struct Version {
  int64_t major = 0;
  int64_t minor = 0;
  int64_t patch = 0;

  auto operator<=>(const Version&) const = default;
};

// Nothing when the text does not start with a number.
FOVEA_API std::optional<Version> parse_version(std::string_view text) noexcept;

// Facts of one device as sorted key/text pairs. A key that is missing means "absent"; the text
// "unknown" means "present, version not understood"; "broken: CAUSE" means installed and of no use,
// which is absent with a cause. Value type; comparable; cheap to hash through `text()`.
class DeviceFacts {
 public:
  explicit DeviceFacts(PlatformId platform = PlatformId::cpu) : platform_(platform) {}

  PlatformId platform() const noexcept { return platform_; }
  // Nothing when absent.
  FOVEA_API std::optional<std::string_view> get(std::string_view key) const noexcept;
  bool has(std::string_view key) const noexcept { return get(key).has_value(); }
  // Nothing when absent or not understood.
  FOVEA_API std::optional<Version> version(std::string_view key) const noexcept;
  // Absent is `fallback`; "0" and "broken" are false; any other text (a version, 1, unknown) is
  // true.
  FOVEA_API bool flag(std::string_view key, bool fallback = false) const noexcept;
  // The cause of "broken: CAUSE", which may be empty; nothing for every other text.
  FOVEA_API std::optional<std::string_view> fault(std::string_view key) const noexcept;
  FOVEA_API std::optional<int64_t> integer(std::string_view key) const noexcept;
  FOVEA_API void set(std::string key, std::string value);
  const std::vector<std::pair<std::string, std::string>>& entries() const noexcept {
    return entries_;
  }
  // "cuda: cudnn=9.19,sm=90"
  std::string text() const;

  bool operator==(const DeviceFacts&) const = default;

 private:
  PlatformId platform_;
  std::vector<std::pair<std::string, std::string>> entries_;
};

// One known key of a platform.
struct FactKey {
  enum class Type : uint8_t { version, flag, integer, text };
  std::string_view key;
  Type type;
  bool required;
  std::string_view summary;
};

// The keys a platform knows. Thread-safe; static storage.
FOVEA_API const std::vector<FactKey>& fact_keys(PlatformId platform);

// Reads "sm=90,cudnn=9.19". Error invalid_facts for unknown keys (lists them), duplicates, wrong
// values and missing required keys. Nothing is probed.
FOVEA_API Result<DeviceFacts> parse_facts(PlatformId platform, std::string_view text);

// A named set of facts such as "h200": the files of data/devices, which are part of the library.
struct DevicePreset {
  std::string name;
  std::string summary;
  PlatformId platform = PlatformId::cpu;
  std::string facts;  // as parse_facts reads them
};
// In a fixed order. Thread-safe; static storage.
FOVEA_API const std::vector<DevicePreset>& device_presets();

// Case-insensitive. Error invalid_facts lists the presets. Thread-safe, also the next ones.
FOVEA_API Result<DevicePreset> find_device_preset(std::string_view name);
FOVEA_API Result<DeviceFacts> preset_facts(std::string_view name);
// "sm=90,cudnn=9.19" with "cudnn=9.14" put over it, as text for parse_facts. Pure.
FOVEA_API std::string overlay_facts(std::string_view facts, std::string_view changes);

// A preset of one's own in the form of data/devices, {"name", "summary", "platform", "facts": {},
// "sources": {}}; summary and sources may be left out. `origin` names the text in messages. Error
// invalid_config for text that is not such a map, unknown keys included; invalid_facts as
// parse_facts.
FOVEA_API Result<DevicePreset> parse_device_preset(std::string_view json, std::string_view origin);

// Facts of the CPU this process runs on, capped by FOVEA_ISA. Error invalid_argument for an unknown
// FOVEA_ISA.
FOVEA_API Result<DeviceFacts> probe_cpu();

// Facts of cuda:`index` as this process counts devices: sm, name, driver, cuda, cudnn where it
// loads, and the architectures that this binary embeds. Asked once per process. Errors: not_built
// in a build without CUDA; device_error without a driver, a device, or one of this index.
// Thread-safe.
FOVEA_API Result<DeviceFacts> probe_cuda(int index);

// Facts of device `index` of a platform on this machine: probe_cpu, probe_cuda, and for rocm, npu,
// xpu and musa what the files of their kernel drivers say (and libmusa), asked once per process:
// the architecture, name and driver, where they are known. Packages are not looked for. The probes
// of these four have never run on such hardware. Errors: those of the two, and device_error when
// there is no such device. Thread-safe.
FOVEA_API Result<DeviceFacts> probe_device(PlatformId platform, int index);

}  // namespace fovea
