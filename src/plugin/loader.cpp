#include "src/plugin/loader.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "fovea/registry.hpp"
#include "fovea/version.hpp"
#include "src/core/env.hpp"
#include "src/core/log.hpp"
#include "src/core/text.hpp"
#include "src/plugin/adapter.hpp"
#include "src/plugin/device_access.hpp"
#include "src/plugin/package.hpp"
#include "src/plugin/platform.hpp"

namespace fovea::plugin {
namespace {

constexpr size_t kMaxBackends = 64;
constexpr size_t kMaxPlatforms = 8;
constexpr size_t kMaxPackages = 64;
constexpr size_t kMaxAccesses = 8;
constexpr std::string_view kFilePrefix = "libfovea-backend-";
constexpr std::string_view kFileSuffix = ".so";

struct Loaded {
  std::string file;
  std::string name;
  std::string version;
  struct Item {
    std::string name;
    std::string backend_name;
    std::vector<OptionField> options;
    std::shared_ptr<const Backend> backend;
  };
  std::vector<Item> items;
  std::vector<PlatformEntries> platforms;
  std::vector<PackageKernel> packages;
  std::vector<DeviceAccess> accesses;
};

// Process-wide, like the registry that the backends go into; every access holds the lock.
struct Plugins {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Loaded>, std::less<>> by_file;
  std::map<std::string, std::thread::id> loading;  // files, and who runs their entry functions
  std::condition_variable loaded;                  // one of them is done
};

Plugins& plugins() {
  static Plugins instance;
  return instance;
}

Result<std::string> absolute_file(std::string_view file) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(std::filesystem::path(file), error);
  if (error)
    return Error{ErrorCode::invalid_file,
                 "plugin " + text::quote(file) + ": " + error.message(),
                 {{ReasonCode::plugin, "plugin " + std::string(file), error.message(), {}, {}}}};
  return path.string();
}

Result<fovea_plugin> describe(fovea_plugin_entry_function entry, const std::string& file) {
  const fovea_plugin_host host{sizeof host, FOVEA_PLUGIN_ABI_MAJOR, FOVEA_PLUGIN_ABI_MINOR,
                               version()};
  Sink sink;
  const fovea_plugin* given = nullptr;
  int32_t code = FOVEA_OK;
  FOVEA_CHECK(
      guarded(file, "fovea_plugin_entry", [&] { code = entry(&host, &given, sink.get()); }));
  if (code != FOVEA_OK)
    return misbehaved(file, text::concat("refuses to load (code ", code, ")",
                                         sink.message().empty() ? "" : ": ", sink.message()));
  FOVEA_TRY(const fovea_plugin head,
            read_struct(given, offsetof(fovea_plugin, name), file, "its description"));
  if (head.abi_major != FOVEA_PLUGIN_ABI_MAJOR)
    return misbehaved(file,
                      text::concat("is written for version ", head.abi_major, ".", head.abi_minor,
                                   " of the plugin interface; this library "
                                   "has ",
                                   FOVEA_PLUGIN_ABI_MAJOR, ".", FOVEA_PLUGIN_ABI_MINOR));
  return read_struct(given, offsetof(fovea_plugin, backends) + sizeof(given->backends), file,
                     "its description");
}

// A list of a plugin: its count is possible, and it is there.
Status check_list(const std::string& file, const char* what, const void* list, size_t count,
                  size_t most, size_t fewest = 0) {
  if (count < fewest || count > most)
    return misbehaved(
        file, text::concat("has ", count, " ", what, ", which is not in ", fewest, "..", most));
  if (count > 0 && list == nullptr)
    return misbehaved(file, text::concat("its list of ", what, " is NULL"));
  return {};
}

Result<std::shared_ptr<const Loaded>> open_file(const std::string& file) {
  // The handle is kept: code of the plugin may be in use until the process ends.
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const cause = dlerror();
    return misbehaved(file, "does not load: " + read_text(cause, "unknown cause"));
  }
  void* const symbol = dlsym(handle, "fovea_plugin_entry");
  if (symbol == nullptr) return misbehaved(file, "exports no function fovea_plugin_entry");
  FOVEA_TRY(const fovea_plugin given,
            describe(reinterpret_cast<fovea_plugin_entry_function>(symbol), file));
  FOVEA_CHECK(check_list(file, "platforms", given.platforms, given.platform_count, kMaxPlatforms));
  FOVEA_CHECK(check_list(file, "packages", given.packages, given.package_count, kMaxPackages));
  FOVEA_CHECK(check_list(file, "accesses", given.accesses, given.access_count, kMaxAccesses));
  const bool other = given.platform_count + given.package_count + given.access_count > 0;
  FOVEA_CHECK(check_list(file, "backends", given.backends, given.backend_count, kMaxBackends,
                         other ? 0 : 1));
  auto loaded = std::make_shared<Loaded>();
  loaded->file = file;
  loaded->name = read_text(given.name, "unnamed");
  loaded->version = read_text(given.version);
  std::string provider = "plugin " + loaded->name;
  if (!loaded->version.empty()) provider += " " + loaded->version;
  for (size_t i = 0; i < given.backend_count; ++i) {
    FOVEA_TRY(BackendEntries entries, read_backend(given.backends[i], file));
    for (const Loaded::Item& item : loaded->items)
      if (item.name == entries.name)
        return misbehaved(file, "has two backends called " + entries.name);
    Loaded::Item item{entries.name, entries.backend_name, entries.options, nullptr};
    std::string path = "plugin:" + file + "#" + entries.name;
    item.backend = make_backend(std::move(entries), std::move(path), provider);
    loaded->items.push_back(std::move(item));
  }
  for (size_t i = 0; i < given.platform_count; ++i) {
    FOVEA_TRY(PlatformEntries entries, read_platform(given.platforms[i], file, provider));
    loaded->platforms.push_back(std::move(entries));
  }
  for (size_t i = 0; i < given.package_count; ++i) {
    FOVEA_TRY(PackageKernel kernel, read_package(given.packages[i], file));
    loaded->packages.push_back(std::move(kernel));
  }
  for (size_t i = 0; i < given.access_count; ++i) {
    FOVEA_TRY(DeviceAccess access, read_access(given.accesses[i], file));
    loaded->accesses.push_back(std::move(access));
  }
  return std::shared_ptr<const Loaded>(std::move(loaded));
}

Result<std::shared_ptr<const Loaded>> open_once(std::string_view file) {
  FOVEA_TRY(const std::string absolute, absolute_file(file));
  Plugins& all = plugins();
  const std::thread::id self = std::this_thread::get_id();
  std::unique_lock lock(all.mutex);
  for (;;) {
    if (auto found = all.by_file.find(absolute); found != all.by_file.end()) return found->second;
    const auto busy = all.loading.find(absolute);
    if (busy == all.loading.end()) break;
    if (busy->second == self) return misbehaved(absolute, "loads itself while it is being loaded");
    all.loaded.wait(lock);
  }
  all.loading.emplace(absolute, self);
  // Not under the lock: the plugin's code may call this library.
  lock.unlock();
  Result<std::shared_ptr<const Loaded>> opened = open_file(absolute);
  lock.lock();
  all.loading.erase(absolute);
  all.loaded.notify_all();
  if (!opened) return std::move(opened).error();
  return all.by_file.emplace(absolute, std::move(opened).value()).first->second;
}

// A built-in name or alias, or a new name.
struct Declared {
  BackendName name;
  bool built_in = false;
};
Result<Declared> declared_name(const std::string& text, std::string_view who) {
  for (const BackendNameInfo& row : backend_names()) {
    if (row.canonical == text) return Declared{row.name, true};
    for (std::string_view alias : row.aliases)
      if (alias == text)
        return misbehaved(
            who, text::concat("declares the alias ", text, "; it must declare ", row.canonical));
  }
  auto added = add_backend_name(text);
  if (!added) return misbehaved(who, added.error().message);
  return Declared{*added, false};
}

// The keys of extra.<NAME> of every backend that declares some; all or none.
Status register_fields(const Loaded& loaded, const LoadedPlugin& plugin) {
  for (size_t i = 0; i < loaded.items.size(); ++i) {
    if (loaded.items[i].options.empty()) continue;
    const Status done = register_option_fields(*plugin.backends[i].name, loaded.items[i].options);
    if (done) continue;
    for (size_t j = 0; j < i; ++j)
      if (!loaded.items[j].options.empty()) clear_option_fields(*plugin.backends[j].name);
    return misbehaved(loaded.file, done.error().message);
  }
  return {};
}

std::vector<std::string> plugin_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.starts_with(kFilePrefix) && file.ends_with(kFileSuffix))
      files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<std::shared_ptr<const Backend>> load_named(std::string_view rest) {
  const size_t mark = rest.rfind('#');
  if (mark == std::string_view::npos || mark == 0 || mark + 1 == rest.size())
    return Error{ErrorCode::invalid_argument,
                 "plugin path " + text::quote(rest) + " is not FILE#NAME",
                 {{ReasonCode::plugin, "plugin path", std::string(rest), "FILE#NAME", {}}}};
  FOVEA_TRY(const std::shared_ptr<const Loaded> loaded, open_once(rest.substr(0, mark)));
  const std::string_view wanted = rest.substr(mark + 1);
  std::vector<std::string> names;
  for (const Loaded::Item& item : loaded->items) {
    if (item.name == wanted) return item.backend;
    names.push_back(item.name);
  }
  return misbehaved(loaded->file, text::concat("has no backend ", text::quote(wanted),
                                               text::suggestion(wanted, names), " (it has ",
                                               text::join(names), ")"));
}

}  // namespace fovea::plugin

namespace fovea {

Status enable_plugin_paths() {
  // Setting a loader drops what was loaded through it, so it is set once.
  static std::mutex mutex;
  static bool enabled = false;
  std::lock_guard lock(mutex);
  if (enabled) return {};
  FOVEA_CHECK(set_path_loader("plugin", plugin::load_named));
  enabled = true;
  return {};
}

Result<LoadedPlugin> load_plugin(const std::string& file) {
  FOVEA_CHECK(enable_plugin_paths());
  FOVEA_TRY(const std::shared_ptr<const plugin::Loaded> loaded, plugin::open_once(file));
  LoadedPlugin out{loaded->file, loaded->name, loaded->version, {}, {}, {}, {}};
  for (const plugin::Loaded::Item& item : loaded->items) {
    PluginBackend& backend = out.backends.emplace_back();
    backend.path = item.backend->path();
    if (item.backend_name.empty()) continue;
    FOVEA_TRY(const plugin::Declared declared,
              plugin::declared_name(item.backend_name, loaded->file));
    backend.name = declared.name;
    backend.replaced = declared.built_in;
  }
  FOVEA_CHECK(plugin::register_fields(*loaded, out));
  for (const plugin::PlatformEntries& platform : loaded->platforms) {
    FOVEA_CHECK(plugin::add(platform));
    out.platforms.push_back(platform.name);
    log(LogLevel::info, text::concat("platform ", platform.name, " is added by ", loaded->file));
  }
  for (const plugin::DeviceAccess& access : loaded->accesses) {
    FOVEA_CHECK(plugin::add(access));
    out.accesses.push_back(access.platform);
  }
  for (const PackageKernel& kernel : loaded->packages) {
    FOVEA_CHECK(bind_package(kernel));
    out.packages.push_back(kernel.package);
    log(LogLevel::info,
        text::concat("the kernel of package ", kernel.package, " is bound by ", loaded->file));
  }
  for (size_t i = 0; i < out.backends.size(); ++i) {
    const PluginBackend& backend = out.backends[i];
    if (!backend.name) continue;
    FOVEA_CHECK(register_backend(*backend.name, loaded->items[i].backend));
    log(backend.replaced ? LogLevel::warning : LogLevel::info,
        text::concat(name(*backend.name), backend.replaced ? " is replaced by " : " is added by ",
                     backend.path));
  }
  return out;
}

PluginSearch load_plugins(const std::vector<std::string>& folders) {
  PluginSearch out;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) {
      out.failed.push_back(Error{ErrorCode::invalid_file,
                                 "plugin folder " + text::quote(folder) + " is not a folder",
                                 {}});
      log(LogLevel::warning, out.failed.back().message);
      continue;
    }
    for (const std::string& file : plugin::plugin_files(folder)) {
      if (Result<LoadedPlugin> loaded = load_plugin(file)) {
        out.loaded.push_back(std::move(loaded).value());
      } else {
        log(LogLevel::warning, loaded.error().message);
        out.failed.push_back(std::move(loaded).error());
      }
    }
  }
  return out;
}

PluginSearch load_plugins_from_environment() {
  std::vector<std::string> folders;
  if (const std::optional<std::string> value = env::read(env::Variable::plugin_path))
    for (std::string_view folder : text::split(*value, ':'))
      if (!text::trim(folder).empty()) folders.emplace_back(text::trim(folder));
  return load_plugins(folders);
}

}  // namespace fovea
