#include "src/platform/driver_probe.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::platform {
namespace {

namespace fs = std::filesystem;

// Files of drivers are short; what is not is something else.
constexpr size_t kMaxBytes = 1 << 16;

// The text of a file without blanks at its ends; empty when it cannot be read.
std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxBytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  return std::string(text::trim(text));
}

// The number that follows `prefix` in a name: 128 of "renderD128".
std::optional<int64_t> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return text::parse_integer(name.substr(prefix.size()));
}

// Entries of a folder called prefix and a number, by number.
std::vector<std::pair<int64_t, fs::path>> numbered(const fs::path& folder,
                                                   std::string_view prefix) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (const auto number = number_after(it->path().filename().string(), prefix))
      found.emplace_back(*number, it->path());
  std::sort(found.begin(), found.end());
  return found;
}

// "0x8086" is 0x8086; 0 when it is no such number.
uint32_t hexadecimal(std::string_view text) {
  uint32_t value = 0;
  if (!text.starts_with("0x")) return 0;
  text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

struct PciDevice {
  uint32_t vendor = 0;
  uint32_t device = 0;
  uint32_t kind = 0;  // base class and subclass: 0x0300 is a display
};

PciDevice pci_device(const fs::path& folder) {
  return {hexadecimal(contents(folder / "vendor")), hexadecimal(contents(folder / "device")),
          hexadecimal(contents(folder / "class")) >> 8};
}

constexpr uint32_t kDisplay = 0x03;
constexpr uint32_t kAccelerator = 0x12;

// The devices of a vendor and one of two base classes, by address.
std::vector<PciDevice> pci_devices(const fs::path& root, uint32_t vendor) {
  std::vector<fs::path> folders;
  std::error_code code;
  for (fs::directory_iterator it(root / "sys/bus/pci/devices", code), end; !code && it != end;
       it.increment(code))
    folders.push_back(it->path());
  std::sort(folders.begin(), folders.end());
  std::vector<PciDevice> found;
  for (const fs::path& folder : folders) {
    const PciDevice device = pci_device(folder);
    const uint32_t base = device.kind >> 8;
    if (device.vendor == vendor && (base == kDisplay || base == kAccelerator))
      found.push_back(device);
  }
  return found;
}

// Four digits.
std::string hexadecimal_text(uint32_t number) {
  std::string digits;
  for (int shift = 12; shift >= 0; shift -= 4) digits += "0123456789abcdef"[number >> shift & 15];
  return digits;
}

// "Intel GPU 8086:0bd5"
std::string pci_name(std::string_view what, const PciDevice& device) {
  return text::concat(what, ' ', hexadecimal_text(device.vendor), ':',
                      hexadecimal_text(device.device));
}

// A fact is one line without the separators of --facts.
void set_text(DeviceFacts& facts, std::string key, std::string value) {
  std::replace_if(
      value.begin(), value.end(), [](char c) { return c == ',' || text::is_blank(c); }, ' ');
  if (!value.empty()) facts.set(std::move(key), std::move(value));
}

// The value of "key value" or "key=value" lines.
std::string value_of(std::string_view text, std::string_view key, char separator) {
  for (std::string_view line : text::split(text, '\n')) {
    line = text::trim(line);
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == separator)
      return std::string(text::trim(line.substr(key.size() + 1)));
  }
  return {};
}

std::vector<DeviceFacts> rocm_devices(const fs::path& root) {
  std::vector<DeviceFacts> devices;
  for (const auto& [node, folder] : numbered(root / "sys/class/kfd/kfd/topology/nodes", "")) {
    const std::string properties = contents(folder / "properties");
    const auto version = text::parse_integer(value_of(properties, "gfx_target_version", ' '));
    std::string gfx = gfx_name(version.value_or(0));
    if (gfx.empty()) continue;  // a CPU
    DeviceFacts facts(PlatformId::rocm);
    facts.set("gfx", std::move(gfx));
    const std::string minor = value_of(properties, "drm_render_minor", ' ');
    const fs::path drm = root / "sys/class/drm" / ("renderD" + minor) / "device";
    set_text(facts, "name", contents(drm / "product_name"));
    set_text(facts, "driver", contents(root / "sys/module/amdgpu/version"));
    devices.push_back(std::move(facts));
  }
  return devices;
}

std::vector<DeviceFacts> npu_devices(const fs::path& root) {
  constexpr uint32_t kHuawei = 0x19e5;
  std::vector<PciDevice> on_bus = pci_devices(root, kHuawei);
  std::erase_if(on_bus, [](const PciDevice& d) { return d.kind >> 8 != kAccelerator; });
  const std::string driver =
      value_of(contents(root / "usr/local/Ascend/driver/version.info"), "Version", '=');
  // A container may see fewer device files than there are cards; they are of one kind.
  std::vector<DeviceFacts> devices(numbered(root / "dev", "davinci").size(),
                                   DeviceFacts(PlatformId::npu));
  for (DeviceFacts& facts : devices) {
    if (!on_bus.empty()) set_text(facts, "name", pci_name("Huawei accelerator", on_bus.front()));
    set_text(facts, "driver", driver);
  }
  return devices;
}

// Data Center GPU Max, whose architecture id the policy names.
bool is_gpu_max(uint32_t device) {
  return (device >= 0x0bd4 && device <= 0x0bdb) || device == 0x0be0 || device == 0x0be1 ||
         device == 0x0be5 || device == 0x0b69 || device == 0x0b6e;
}

std::vector<DeviceFacts> xpu_devices(const fs::path& root) {
  constexpr uint32_t kIntel = 0x8086;
  std::vector<DeviceFacts> devices;
  for (const auto& [node, folder] : numbered(root / "sys/class/drm", "renderD")) {
    const PciDevice device = pci_device(folder / "device");
    if (device.vendor != kIntel) continue;
    DeviceFacts facts(PlatformId::xpu);
    const bool max = is_gpu_max(device.device);
    if (max) facts.set("arch", "13136561920");
    set_text(facts, "name", pci_name(max ? "Intel Data Center GPU Max" : "Intel GPU", device));
    devices.push_back(std::move(facts));
  }
  return devices;
}

// What the runtime says of the devices, in its order; nothing when it is not there or fails.
std::vector<DeviceFacts> musa_runtime_devices(const FindFunction& find) {
  constexpr const char* kLibrary = "libmusa.so";
  const auto function = [&](const char* name) { return find(kLibrary, name); };
  const auto init = reinterpret_cast<int (*)(unsigned)>(function("muInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(function("muDeviceGetCount"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(function("muDeviceGet"));
  const auto named = reinterpret_cast<int (*)(char*, int, int)>(function("muDeviceGetName"));
  const auto capability =
      reinterpret_cast<int (*)(int*, int*, int)>(function("muDeviceComputeCapability"));
  int devices = 0;
  if (init == nullptr || count == nullptr || get == nullptr || capability == nullptr ||
      init(0) != 0 || count(&devices) != 0)
    return {};
  std::vector<DeviceFacts> found;
  for (int index = 0; index < devices; ++index) {
    DeviceFacts facts(PlatformId::musa);
    int device = 0, major = 0, minor = 0;
    if (get(&device, index) != 0 || capability(&major, &minor, device) != 0) return {};
    facts.set("cc", text::concat(major, '.', minor));
    char name[256] = {};
    if (named != nullptr && named(name, sizeof name - 1, device) == 0)
      set_text(facts, "name", name);
    found.push_back(std::move(facts));
  }
  return found;
}

std::vector<DeviceFacts> musa_devices(const ProbeSources& sources) {
  constexpr uint32_t kMooreThreads = 0x1ed5;
  const std::vector<PciDevice> on_bus = pci_devices(sources.root, kMooreThreads);
  if (on_bus.empty()) return {};  // nothing to load the runtime for
  std::vector<DeviceFacts> devices = musa_runtime_devices(sources.find);
  if (devices.empty())
    for (const PciDevice& device : on_bus) {
      DeviceFacts& facts = devices.emplace_back(PlatformId::musa);
      set_text(facts, "name", pci_name("Moore Threads GPU", device));
    }
  for (DeviceFacts& facts : devices)
    set_text(facts, "driver", contents(sources.root / "sys/module/mtgpu/version"));
  return devices;
}

}  // namespace

ProbeSources machine_sources() {
  return {"/", [](const char* library, const char* function) -> void* {
            void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
            return handle == nullptr ? nullptr : dlsym(handle, function);
          }};
}

std::vector<DeviceFacts> driver_devices(PlatformId platform, const ProbeSources& sources) {
  switch (platform) {
    case PlatformId::rocm:
      return rocm_devices(sources.root);
    case PlatformId::npu:
      return npu_devices(sources.root);
    case PlatformId::xpu:
      return xpu_devices(sources.root);
    case PlatformId::musa:
      return musa_devices(sources);
    default:
      return {};
  }
}

std::string_view looked_at(PlatformId platform) noexcept {
  switch (platform) {
    case PlatformId::rocm:
      return "/sys/class/kfd/kfd/topology/nodes";
    case PlatformId::npu:
      return "/dev/davinci*";
    case PlatformId::xpu:
      return "/sys/class/drm/renderD*";
    case PlatformId::musa:
      return "/sys/bus/pci/devices";
    default:
      return {};
  }
}

std::string gfx_name(int64_t gfx_target_version) {
  if (gfx_target_version <= 0) return {};
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto digit = [&](int64_t number) { return kDigits[static_cast<size_t>(number & 15)]; };
  return text::concat("gfx", gfx_target_version / 10000, digit(gfx_target_version / 100 % 100),
                      digit(gfx_target_version % 100));
}

}  // namespace fovea::platform

namespace fovea {

Result<DeviceFacts> probe_device(PlatformId platform, int index) {
  if (platform == PlatformId::cuda) return probe_cuda(index);
  if (platform == PlatformId::cpu && index == 0) return probe_cpu();
  const std::string_view place = platform::looked_at(platform);
  if (place.empty())
    return Error{ErrorCode::device_error,
                 text::concat("there is no ", name(platform), ':', index, " to ask here"),
                 {}};
  // Asked once: a device that comes later is found by the next process.
  static const auto known = [] {
    std::vector<std::vector<DeviceFacts>> all;
    for (const PlatformId id :
         {PlatformId::rocm, PlatformId::npu, PlatformId::xpu, PlatformId::musa})
      all.push_back(platform::driver_devices(id, platform::machine_sources()));
    return all;
  }();
  for (const std::vector<DeviceFacts>& devices : known)
    if (!devices.empty() && devices.front().platform() == platform && index >= 0 &&
        static_cast<size_t>(index) < devices.size())
      return devices[static_cast<size_t>(index)];
  return Error{
      ErrorCode::device_error,
      text::concat("this machine has no ", name(platform), ':', index, " (looked at ", place, ")"),
      {}};
}

}  // namespace fovea
