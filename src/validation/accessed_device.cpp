#include "src/validation/accessed_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/core/tensor_members.hpp"
#include "src/core/tensor_memory.hpp"
#include "src/core/text.hpp"
#include "src/plugin/adapter.hpp"
#include "src/plugin/device_access.hpp"
#include "src/plugin/wire.hpp"

namespace fovea::validation {
namespace {

constexpr size_t kGuard = 256;                     // bytes around every tensor, also the alignment
constexpr char kPoison = static_cast<char>(0xff);  // NaN in every float type

// The entries of an access as calls that fail with an error.
class Calls {
 public:
  Calls(plugin::DeviceAccess access, int32_t index) : access_(std::move(access)), index_(index) {}

  const std::string& who() const noexcept { return access_.who; }
  bool captures() const noexcept { return access_.captures(); }

  Status describe(fovea_device_info& info) const {
    return call("describe", [&](const fovea_plugin_sink* sink) {
      return access_.calls.describe(access_.calls.self, index_, &info, sink);
    });
  }
  Result<void*> allocate(size_t bytes) const {
    void* memory = nullptr;
    FOVEA_CHECK(call("allocate", [&](const fovea_plugin_sink* sink) {
      return access_.calls.allocate(access_.calls.self, index_, bytes, &memory, sink);
    }));
    if (memory == nullptr) return plugin::misbehaved(who(), "allocate stored NULL");
    return memory;
  }
  void release(void* memory) const {
    const Status done = plugin::guarded(
        who(), "release", [&] { access_.calls.release(access_.calls.self, index_, memory); });
    static_cast<void>(done.has_value());  // the run is over; nobody is left to hear of it
  }
  Status copy(void* to, const void* from, size_t bytes, int32_t direction) const {
    if (bytes == 0) return {};
    return call("copy", [&](const fovea_plugin_sink* sink) {
      return access_.calls.copy(access_.calls.self, index_, to, from, bytes, direction, sink);
    });
  }
  Status synchronise() const {
    return call("synchronise", [&](const fovea_plugin_sink* sink) {
      return access_.calls.synchronise(access_.calls.self, index_, sink);
    });
  }
  Result<void*> capture(int32_t (*body)(void* user, void* stream), void* user) const {
    void* recording = nullptr;
    FOVEA_CHECK(call("capture", [&](const fovea_plugin_sink* sink) {
      return access_.calls.capture(access_.calls.self, index_, body, user, &recording, sink);
    }));
    return recording;
  }
  Status replay(void* recording) const {
    return call("replay", [&](const fovea_plugin_sink* sink) {
      return access_.calls.replay(access_.calls.self, index_, recording, sink);
    });
  }
  void drop(void* recording) const {
    const Status done = plugin::guarded(
        who(), "drop", [&] { access_.calls.drop(access_.calls.self, index_, recording); });
    static_cast<void>(done.has_value());
  }
  Result<void*> stream() const {
    void* stream = nullptr;
    if (access_.calls.stream == nullptr) return stream;
    FOVEA_CHECK(plugin::guarded(
        who(), "stream", [&] { stream = access_.calls.stream(access_.calls.self, index_); }));
    return stream;
  }

 private:
  template <class Entry>
  Status call(const char* name, Entry&& entry) const {
    plugin::Sink sink;
    int32_t code = FOVEA_OK;
    FOVEA_CHECK(plugin::guarded(who(), name, [&] { code = entry(sink.get()); }));
    if (code == FOVEA_OK) return {};
    return Error{ErrorCode::device_error,
                 text::concat(who(), ": ", name, " failed with code ", code,
                              sink.message().empty() ? "" : ": ", sink.message()),
                 {}};
  }

  plugin::DeviceAccess access_;
  int32_t index_;
};

// Memory of the device.
class Buffer {
 public:
  static Result<Buffer> allocate(std::shared_ptr<const Calls> calls, size_t bytes) {
    Buffer buffer;
    FOVEA_TRY(buffer.data_, calls->allocate(std::max<size_t>(bytes, 1)));
    buffer.calls_ = std::move(calls);
    return Result<Buffer>(std::move(buffer));
  }
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : calls_(std::move(other.calls_)), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) calls_->release(data_);
  }

  char* data() const noexcept { return static_cast<char*>(data_); }

 private:
  std::shared_ptr<const Calls> calls_;
  void* data_ = nullptr;
};

class AccessedDevice final : public RunDevice {
 public:
  AccessedDevice(std::shared_ptr<const Calls> calls, DeviceFacts facts, Device device,
                 std::string name, std::string driver, Stream stream)
      : calls_(std::move(calls)),
        facts_(std::move(facts)),
        device_(device),
        name_(std::move(name)),
        driver_(std::move(driver)),
        stream_(stream) {}
  ~AccessedDevice() override { forget(); }

  const DeviceFacts& facts() const noexcept override { return facts_; }
  Stream stream() const noexcept override { return stream_; }
  std::string name() const override { return name_; }
  std::string driver() const override { return driver_; }
  bool allocates() const noexcept override { return false; }

  Result<AttentionTensors> stage(const AttentionTensors& host) override {
    forget();
    copies_.clear();
    AttentionTensors staged = host;
    for (const TensorMember& member : kTensorMembers) {
      const TensorView& from = host.*member.view;
      if (!from.present()) continue;
      FOVEA_CHECK(check_memory(member.name, from));
      Copy copy{&member, static_cast<size_t>(extent_bytes(from)), {}};
      FOVEA_TRY(copy.memory, Buffer::allocate(calls_, copy.bytes + 2 * kGuard));
      std::vector<char> bytes(copy.bytes + 2 * kGuard, kPoison);
      if (!member.output && copy.bytes > 0)
        std::memcpy(bytes.data() + kGuard, from.data, copy.bytes);
      FOVEA_CHECK(
          calls_->copy(copy.memory.data(), bytes.data(), bytes.size(), FOVEA_COPY_TO_DEVICE));
      TensorView& to = staged.*member.view;
      to.device = device_;
      to.data = copy.memory.data() + kGuard;
      copies_.push_back(std::move(copy));
    }
    return staged;
  }

  Status restage(const AttentionTensors& host) override {
    for (const Copy& copy : copies_)
      if (!copy.member->output)
        FOVEA_CHECK(calls_->copy(copy.memory.data() + kGuard, (host.*copy.member->view).data,
                                 copy.bytes, FOVEA_COPY_TO_DEVICE));
    return {};
  }

  Status fetch(const AttentionTensors& host) override {
    FOVEA_CHECK(calls_->synchronise());
    for (const Copy& copy : copies_)
      if (copy.member->output)
        FOVEA_CHECK(calls_->copy((host.*copy.member->view).data, copy.memory.data() + kGuard,
                                 copy.bytes, FOVEA_COPY_TO_HOST));
    return {};
  }

  Result<std::string> damage(const AttentionTensors& host) override {
    for (const Copy& copy : copies_) {
      std::vector<char> now(copy.bytes + 2 * kGuard);
      FOVEA_CHECK(calls_->copy(now.data(), copy.memory.data(), now.size(), FOVEA_COPY_TO_HOST));
      const auto poisoned = [](const char* bytes) {
        return std::all_of(bytes, bytes + kGuard, [](char byte) { return byte == kPoison; });
      };
      if (!poisoned(now.data()))
        return text::concat("memory before ", copy.member->name, " was written");
      if (!poisoned(now.data() + kGuard + copy.bytes))
        return text::concat("memory behind ", copy.member->name, " was written");
      if (!copy.member->output && copy.bytes > 0 &&
          std::memcmp(now.data() + kGuard, (host.*copy.member->view).data, copy.bytes) != 0)
        return text::concat(copy.member->name, " was written");
    }
    return std::string();
  }

  Status run(const Plan& plan, const AttentionTensors& tensors) override {
    FOVEA_TRY(workspace_, Buffer::allocate(calls_, plan.workspace_bytes()));
    call_ = {&plan, tensors};
    return run_call(stream_);
  }

  bool captures() const noexcept override { return calls_->captures(); }

  Status record(const Plan& plan, const AttentionTensors& tensors) override {
    // The first run outside a capture may load code.
    FOVEA_CHECK(run(plan, tensors));
    if (!captures()) return {};
    failure_ = {};
    const auto body = [](void* user, void* stream) -> int32_t {
      auto* self = static_cast<AccessedDevice*>(user);
      self->failure_ = self->run_call(Stream{stream});
      return self->failure_ ? FOVEA_OK : static_cast<int32_t>(self->failure_.error().code);
    };
    const Result<void*> recording = calls_->capture(body, this);
    if (recording) {
      recording_ = *recording;
      recorded_ = true;
    }
    FOVEA_CHECK(failure_);
    return recording ? Status() : recording.error();
  }

  Status replay() override { return recorded_ ? calls_->replay(recording_) : run_call(stream_); }

 private:
  struct Copy {
    const TensorMember* member;
    size_t bytes;  // between the first and the last element
    Buffer memory;
  };
  struct Call {
    const Plan* plan = nullptr;
    AttentionTensors tensors;
  };

  Status run_call(Stream stream) const {
    return call_.plan->run(call_.tensors, {workspace_.data(), call_.plan->workspace_bytes()},
                           stream);
  }
  void forget() {
    if (recorded_) calls_->drop(recording_);
    recorded_ = false;
  }

  std::shared_ptr<const Calls> calls_;
  DeviceFacts facts_;
  Device device_;
  std::string name_, driver_;
  Stream stream_;
  std::vector<Copy> copies_;
  Buffer workspace_;
  Call call_;
  Status failure_;
  void* recording_ = nullptr;
  bool recorded_ = false;
};

Result<std::unique_ptr<RunDevice>> open(PlatformId platform, int32_t index,
                                        plugin::DeviceAccess access) {
  const auto calls = std::make_shared<const Calls>(std::move(access), index);
  fovea_device_info info{};
  info.struct_size = sizeof info;
  FOVEA_CHECK(calls->describe(info));
  FOVEA_TRY(DeviceFacts facts, parse_facts(platform, plugin::read_text(info.facts)));
  FOVEA_TRY(void* const stream, calls->stream());
  const Device device{static_cast<DeviceType>(info.device_type), index};
  const std::string where = to_string(device);
  if (where.starts_with("unknown"))
    return plugin::misbehaved(calls->who(),
                              text::concat("describes a device of type ", info.device_type,
                                           ", which is none of 1, 2, 3, 10, 12, 14"));
  return std::unique_ptr<RunDevice>(std::make_unique<AccessedDevice>(
      calls, std::move(facts), device, plugin::read_text(info.name, "unnamed"),
      plugin::read_text(info.driver), Stream{stream}));
}

}  // namespace

Result<std::unique_ptr<RunDevice>> open_accessed(PlatformId platform, int32_t index,
                                                 const fovea_device_access& access) {
  FOVEA_TRY(plugin::DeviceAccess read, plugin::read_access(&access, "the host program"));
  if (read.platform != name(platform))
    return plugin::misbehaved(read.who, text::concat("gives access to ", read.platform,
                                                     " devices, not to ", name(platform)));
  return open(platform, index, std::move(read));
}

Result<std::unique_ptr<RunDevice>> open_accessed(PlatformId platform, int32_t index) {
  if (auto access = plugin::find_access(platform)) return open(platform, index, *std::move(access));
  Reason reason{ReasonCode::platform, "device", std::string(name(platform)),
                "cpu, cuda, or a platform whose memory a loaded plugin gives access to",
                text::concat("load a plugin with a fovea_device_access for ", name(platform),
                             " (FOVEA_PLUGIN_PATH, docs/plugins.md), or run python3 -m "
                             "fovea.check, which takes the memory of torch")};
  return Error{ErrorCode::not_available,
               text::concat("validation run: ", sentence(reason)),
               {std::move(reason)}};
}

}  // namespace fovea::validation
