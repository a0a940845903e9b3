// fovea devices: this machine, and with --presets the named devices and models.
#include <thread>

#include "fovea/model_preset.hpp"
#include "src/core/log.hpp"
#include "src/core/text.hpp"
#include "src/cuda_device/device.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

// A device of this machine.
struct LocalDevice {
  std::string device;
  DeviceFacts facts;
  int64_t memory_bytes = 0;  // of a GPU
  unsigned threads = 0;      // of the CPU
};

// The CPU, the CUDA GPUs that this binary can use (why there are none is logged), and what the
// drivers of the other platforms show.
Result<std::vector<LocalDevice>> local_devices() {
  std::vector<LocalDevice> devices;
  FOVEA_TRY(DeviceFacts cpu, probe_cpu());
  devices.push_back({to_string(kCpu), std::move(cpu), 0, std::thread::hardware_concurrency()});
  const Result<int> count = cuda::device_count();
  if (!count) log(LogLevel::info, count.error().message);
  for (int index = 0; count && index < *count; ++index) {
    FOVEA_TRY(DeviceFacts facts, probe_cuda(index));
    FOVEA_TRY(const cuda::DeviceInfo* const info, cuda::device_info(index));
    devices.push_back(
        {to_string(Device{DeviceType::cuda, index}), std::move(facts), info->memory_bytes, 0});
  }
  for (const PlatformId id : {PlatformId::rocm, PlatformId::npu, PlatformId::xpu, PlatformId::musa})
    for (int index = 0;; ++index) {
      Result<DeviceFacts> facts = probe_device(id, index);
      if (!facts) break;
      devices.push_back({text::concat(name(id), ':', index), *std::move(facts), 0, 0});
    }
  return devices;
}

std::string gibibytes(int64_t bytes) {
  return text::concat(fixed(static_cast<double>(bytes) / 0x1p30, 0), " GiB");
}

// The fact that tells the devices of a platform apart.
std::string architecture(const DeviceFacts& facts) {
  if (const auto sm = facts.get("sm")) return text::concat("sm_", *sm);
  for (const char* key : {"gfx", "arch"})
    if (const auto value = facts.get(key)) return std::string(*value);
  const auto cc = facts.get("cc");
  return cc ? text::concat("cc ", *cc) : "-";
}

std::string facts_json(const DeviceFacts& facts) {
  JsonMembers members;
  for (const auto& [key, value] : facts.entries()) members.emplace_back(key, text_json(value));
  return object_json(members);
}

std::string model_json(const ModelDescription& model) {
  std::vector<std::string> roles;
  for (const ModelRole& role : model.roles) {
    roles.push_back(object_json({{"role", text_json(role.role)},
                                 {"category", text_json(role.category)},
                                 {"heads", std::to_string(role.heads)},
                                 {"head_dim", std::to_string(role.head_dim)},
                                 {"seq_q", std::to_string(role.seq_q)},
                                 {"seq_kv", std::to_string(role.seq_kv)},
                                 {"mask", role.mask == MaskKind::none ? "null" : text_json("keys")},
                                 {"layers", std::to_string(role.layers)}}));
  }
  return object_json({{"name", text_json(model.name)},
                      {"height", std::to_string(model.size.height)},
                      {"width", std::to_string(model.size.width)},
                      {"frames", std::to_string(model.size.frames)},
                      {"layers", std::to_string(model.layers)},
                      {"steps", std::to_string(model.steps)},
                      {"mask_free", model.mask_free ? "true" : "false"},
                      {"roles", array_json(roles)}});
}

Table presets_table() {
  Table table{{"device", "platform", "summary", "facts"}, {}};
  for (const DevicePreset& preset : device_presets()) {
    table.rows.push_back({std::string(preset.name), std::string(name(preset.platform)),
                          std::string(preset.summary), std::string(preset.facts)});
  }
  return table;
}

Table models_table(const std::vector<ModelDescription>& models) {
  Table table{{"model", "size", "frames", "role", "category", "heads", "head_dim", "seq_q",
               "seq_kv", "mask", "layers"},
              {}};
  for (const ModelDescription& model : models) {
    for (const ModelRole& role : model.roles) {
      table.rows.push_back(
          {std::string(model.name), text::concat(model.size.height, "x", model.size.width),
           std::to_string(model.size.frames), std::string(role.role), std::string(role.category),
           std::to_string(role.heads), std::to_string(role.head_dim), std::to_string(role.seq_q),
           std::to_string(role.seq_kv), role.mask == MaskKind::none ? "none" : "keys",
           std::to_string(role.layers)});
    }
  }
  return table;
}

class DevicesVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("--presets", "", &presets_, "List the named devices and models instead");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    return presets_ ? print_presets(invocation) : print_devices(invocation);
  }

 private:
  static Result<ExitCode> print_devices(const Invocation& invocation) {
    FOVEA_TRY(const std::vector<LocalDevice> devices, local_devices());
    const Terminal& terminal = invocation.terminal;
    Table table{{"device", "platform", "name", "architecture", "memory", "isa", "threads"}, {}};
    std::vector<std::string> objects;
    for (const LocalDevice& device : devices) {
      const auto fact = [&](const char* key) {
        return std::string(device.facts.get(key).value_or("-"));
      };
      const bool cpu = device.facts.platform() == PlatformId::cpu;
      const bool memory = device.memory_bytes > 0;
      table.rows.push_back({device.device, std::string(name(device.facts.platform())), fact("name"),
                            architecture(device.facts),
                            memory ? gibibytes(device.memory_bytes) : "-", fact("isa"),
                            cpu ? std::to_string(device.threads) : "-"});
      JsonMembers members{{"device", text_json(device.device)},
                          {"platform", text_json(name(device.facts.platform()))}};
      if (cpu) {
        members.emplace_back("isa", text_json(fact("isa")));
        members.emplace_back("threads", std::to_string(device.threads));
      } else {
        members.emplace_back("memory_bytes", memory ? std::to_string(device.memory_bytes) : "null");
      }
      members.emplace_back("facts", facts_json(device.facts));
      objects.push_back(object_json(members));
    }
    switch (invocation.format) {
      case Format::json:
        terminal.write(object_json(
            {{"schema", text_json("fovea.devices/1")}, {"devices", array_json(objects)}}));
        break;
      case Format::csv:
        terminal.write(to_csv(table));
        break;
      case Format::table:
        terminal.write(terminal.aligned(table));
        break;
    }
    return kOk;
  }

  static Result<ExitCode> print_presets(const Invocation& invocation) {
    std::vector<ModelDescription> models;
    for (const ModelPreset& preset : model_presets()) {
      FOVEA_TRY(ModelDescription model, describe_model(preset.name));
      models.push_back(std::move(model));
    }
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json: {
        std::vector<std::string> devices;
        for (const DevicePreset& preset : device_presets()) {
          FOVEA_TRY(const DeviceFacts facts, preset_facts(preset.name));
          devices.push_back(object_json({{"name", text_json(preset.name)},
                                         {"platform", text_json(name(preset.platform))},
                                         {"summary", text_json(preset.summary)},
                                         {"facts", facts_json(facts)}}));
        }
        std::vector<std::string> model_objects;
        for (const ModelDescription& model : models) model_objects.push_back(model_json(model));
        terminal.write(object_json({{"schema", text_json("fovea.presets/1")},
                                    {"devices", array_json(devices)},
                                    {"models", array_json(model_objects)}}));
        break;
      }
      case Format::csv:
        terminal.write(to_csv(presets_table()) + "\n" + to_csv(models_table(models)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(presets_table()) + "\n" +
                       terminal.aligned(models_table(models)));
        break;
    }
    return kOk;
  }

  bool presets_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_devices() { return std::make_unique<DevicesVerb>(); }

}  // namespace fovea::cli
