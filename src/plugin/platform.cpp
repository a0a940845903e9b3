#include "src/plugin/platform.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "src/core/text.hpp"
#include "src/plugin/adapter.hpp"
#include "src/plugin/wire.hpp"

namespace fovea::plugin {
namespace {

constexpr size_t kMaxItems = 64;
constexpr DeviceType kDevices[] = {DeviceType::cpu,  DeviceType::cuda,      DeviceType::cuda_host,
                                   DeviceType::rocm, DeviceType::extension, DeviceType::oneapi};

// Which device holds the tensors of a plugin's platform; every access holds the lock.
struct Devices {
  std::mutex mutex;
  std::map<PlatformId, DeviceType> types;
};

Devices& devices() {
  static Devices instance;
  return instance;
}

class PluginPlatform final : public Platform {
 public:
  PluginPlatform(std::shared_ptr<const PlatformEntries> entries, DeviceFacts facts)
      : entries_(std::move(entries)), facts_(std::move(facts)) {}

  const DeviceFacts& facts() const noexcept override { return facts_; }

  PolicyVerdict judge(BackendName backend, const PolicyQuery& query) const override {
    const std::string text = facts_.text();
    const std::string asked = name(backend);
    fovea_plugin_policy_query wire{};
    wire.struct_size = sizeof wire;
    wire.facts = text.c_str();
    wire.head_dim = query.head_dim;
    wire.mask_free = query.mask_free ? 1 : 0;
    wire.provider = query.provider.c_str();
    Sink sink;
    int32_t code = FOVEA_OK;
    const Status done = guarded(entries_->plugin, "judge", [&] {
      code = entries_->calls.judge(entries_->calls.self, asked.c_str(), &wire, sink.get());
    });
    PolicyVerdict verdict{backend, entries_->provider, {}, std::move(sink.reasons())};
    if (!done) {
      verdict.reasons = done.error().reasons;
    } else if (code != FOVEA_OK) {
      verdict.reasons =
          misbehaved(entries_->plugin, text::concat("judge returned the code ", code)).reasons;
    }
    return verdict;
  }

  std::vector<PolicyVerdict> preference(const PolicyQuery& query) const override {
    std::vector<PolicyVerdict> order;
    for (const std::string& text : entries_->order)
      if (const auto backend = parse_backend(text)) order.push_back(judge(*backend, query));
    return order;
  }

 private:
  std::shared_ptr<const PlatformEntries> entries_;
  DeviceFacts facts_;
};

Status read_facts(const fovea_plugin_platform& calls, PlatformEntries& entries) {
  const std::string& who = entries.plugin;
  if (calls.fact_count > kMaxItems)
    return misbehaved(who, text::concat("platform ", entries.name, " has ", calls.fact_count,
                                        " facts, which is not in 0..", kMaxItems));
  if (calls.fact_count > 0 && calls.facts == nullptr)
    return misbehaved(who, "the list of facts of platform " + entries.name + " is NULL");
  for (size_t i = 0; i < calls.fact_count; ++i) {
    FOVEA_TRY(const fovea_plugin_fact fact,
              read_struct(calls.facts[i], offsetof(fovea_plugin_fact, required), who, "a fact"));
    if (fact.type < FOVEA_FACT_VERSION || fact.type > FOVEA_FACT_TEXT)
      return misbehaved(who, text::concat("a fact of platform ", entries.name, " has type ",
                                          fact.type, ", which is not in 0..3"));
    entries.keys.push_back({read_text(fact.key), static_cast<FactKey::Type>(fact.type),
                            fact.required != 0, read_text(fact.summary)});
  }
  return {};
}

Status read_order(const fovea_plugin_platform& calls, PlatformEntries& entries) {
  const std::string& who = entries.plugin;
  if (calls.order_count < 1 || calls.order_count > kMaxItems)
    return misbehaved(
        who, text::concat("platform ", entries.name, " has an order of ", calls.order_count,
                          " names, which is not in 1..", kMaxItems));
  if (calls.order == nullptr)
    return misbehaved(who, "the order of platform " + entries.name + " is NULL");
  for (size_t i = 0; i < calls.order_count; ++i) {
    if (calls.order[i] == nullptr)
      return misbehaved(who, "a name in the order of platform " + entries.name + " is NULL");
    entries.order.push_back(read_text(calls.order[i]));
  }
  return {};
}

}  // namespace

static_assert(static_cast<int>(FactKey::Type::version) == FOVEA_FACT_VERSION);
static_assert(static_cast<int>(FactKey::Type::flag) == FOVEA_FACT_FLAG);
static_assert(static_cast<int>(FactKey::Type::integer) == FOVEA_FACT_INTEGER);
static_assert(static_cast<int>(FactKey::Type::text) == FOVEA_FACT_TEXT);

Result<PlatformEntries> read_platform(const fovea_plugin_platform* given, std::string_view who,
                                      std::string provider) {
  PlatformEntries entries;
  entries.plugin = who;
  entries.provider = std::move(provider);
  constexpr size_t kRequired =
      offsetof(fovea_plugin_platform, judge) + sizeof(fovea_plugin_platform::judge);
  FOVEA_TRY(entries.calls, read_struct(given, kRequired, who, "the description of a platform"));
  const fovea_plugin_platform& calls = entries.calls;
  if (calls.abi_major != FOVEA_PLUGIN_ABI_MAJOR)
    return misbehaved(
        who,
        text::concat("a platform is written for version ", calls.abi_major, ".", calls.abi_minor,
                     " of the plugin interface; this library has ", FOVEA_PLUGIN_ABI_MAJOR));
  if (calls.name == nullptr) return misbehaved(who, "the name of a platform is NULL");
  entries.name = read_text(calls.name);
  entries.summary = read_text(calls.summary);
  if (calls.judge == nullptr)
    return misbehaved(who, "platform " + entries.name + " lacks the entry judge");
  bool known = false;
  for (const DeviceType type : kDevices)
    known = known || static_cast<int>(type) == calls.device_type;
  if (!known)
    return misbehaved(
        who, text::concat("platform ", entries.name, " has device_type ", calls.device_type,
                          ", which is none of 1, 2, 3, 10, 12, 14"));
  entries.device = static_cast<DeviceType>(calls.device_type);
  FOVEA_CHECK(read_facts(calls, entries));
  FOVEA_CHECK(read_order(calls, entries));
  return entries;
}

Status add(PlatformEntries given) {
  for (const std::string& text : given.order)
    if (const auto backend = parse_backend(text); !backend)
      return misbehaved(given.plugin, text::concat("the order of platform ", given.name, ": ",
                                                   backend.error().message));
  PlatformDefinition definition;
  definition.name = given.name;
  definition.summary = given.summary;
  definition.keys = given.keys;
  const auto entries = std::make_shared<const PlatformEntries>(std::move(given));
  definition.make = [entries](DeviceFacts facts) -> std::shared_ptr<const Platform> {
    return std::make_shared<PluginPlatform>(entries, std::move(facts));
  };
  const Result<PlatformId> id = add_platform(std::move(definition));
  if (!id) return misbehaved(entries->plugin, id.error().message);
  std::lock_guard lock(devices().mutex);
  devices().types[*id] = entries->device;
  return {};
}

std::optional<DeviceType> device_of(PlatformId platform) {
  switch (platform) {
    case PlatformId::cpu:
      return DeviceType::cpu;
    case PlatformId::cuda:
      return DeviceType::cuda;
    case PlatformId::rocm:
      return DeviceType::rocm;
    default:
      break;
  }
  std::lock_guard lock(devices().mutex);
  const auto found = devices().types.find(platform);
  if (found == devices().types.end()) return std::nullopt;
  return found->second;
}

}  // namespace fovea::plugin
