#include "fovea/registry.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "src/backends/list.hpp"
#include "src/backends/package/backend.hpp"
#include "src/core/bound_packages.hpp"

namespace fovea {
namespace {

struct Override {
  std::string path;
  std::shared_ptr<const Backend> object;  // null until a path is loaded
};

// The registry is process-wide by contract; every access holds the lock.
struct Registry {
  std::mutex mutex;
  std::map<BackendName, Override> overrides;
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> loaded;    // by path
  std::map<std::string, PathLoader, std::less<>> loaders;                       // by scheme
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> packages;  // bound kernels
  std::atomic<uint64_t> epoch{1};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::optional<std::pair<std::string_view, std::string_view>> split(std::string_view path) {
  const size_t colon = path.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == path.size())
    return std::nullopt;
  return std::pair{path.substr(0, colon), path.substr(colon + 1)};
}

Error malformed(std::string_view path) {
  return {ErrorCode::invalid_argument,
          "backend path '" + std::string(path) +
              "' is not SCHEME:REST; accepted: builtin:NAME, plugin:/path/lib.so#name",
          {}};
}

Result<std::shared_ptr<const Backend>> load_builtin(BackendName backend, std::string_view path) {
  std::string known;
  for (const backends::BackendEntry& entry : backends::backend_list()) {
    if (entry.path == path) return entry.make();
    known += (known.empty() ? "" : ", ") + std::string(entry.path);
  }
  Reason reason{ReasonCode::not_built, "path", std::string(path), known,
                "choose a backend that this build has (fovea backends)"};
  return Error{ErrorCode::not_built, name(backend) + ": " + sentence(reason), {reason}};
}

// Loads without holding the lock: a plugin's loader may register names itself.
Result<std::shared_ptr<const Backend>> load_path(BackendName backend, const std::string& path) {
  const auto parts = split(path);
  if (!parts) return malformed(path);
  const auto [scheme, rest] = *parts;
  if (scheme == "builtin") return load_builtin(backend, path);
  PathLoader loader;
  {
    std::lock_guard lock(registry().mutex);
    if (scheme == "package") {
      const auto bound = registry().packages.find(rest);
      if (bound != registry().packages.end()) return bound->second;
      return backends::make_package_backend(rest);
    }
    if (auto found = registry().loaders.find(scheme); found != registry().loaders.end())
      loader = found->second;
  }
  if (!loader) {
    Reason reason{ReasonCode::plugin, "path scheme", std::string(scheme), "a scheme with a loader",
                  "load the plugin first"};
    return Error{ErrorCode::not_available, name(backend) + ": " + sentence(reason), {reason}};
  }
  return loader(rest);
}

// Whether the package that would run has a kernel.
bool is_bound(const PolicyVerdict& verdict) {
  const auto parts = split(verdict.path);
  if (!parts || parts->first != "package") return false;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.packages.count(parts->second) > 0;
}

}  // namespace

Status register_backend(BackendName backend, std::shared_ptr<const Backend> object) {
  if (object == nullptr)
    return Error{ErrorCode::invalid_argument,
                 "register_backend: the backend for " + name(backend) + " is null",
                 {}};
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.overrides[backend] = {std::string(object->path()), std::move(object)};
  ++r.epoch;
  return {};
}

Status register_backend(BackendName backend, std::string_view path) {
  if (!split(path)) return malformed(path);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.overrides[backend] = {std::string(path), nullptr};
  ++r.epoch;
  return {};
}

void clear_override(BackendName backend) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (r.overrides.erase(backend) > 0) ++r.epoch;
}

bool is_overridden(BackendName backend) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.overrides.count(backend) > 0;
}

Availability current_availability(BackendName backend, const Platform& platform) {
  PolicyVerdict verdict = platform.judge(backend, {});
  if (!is_overridden(backend) && !is_bound(verdict)) return availability(backend, platform);
  std::erase_if(verdict.reasons,
                [](const Reason& reason) { return reason.code == ReasonCode::not_built; });
  if (!verdict.reasons.empty()) return availability(backend, platform);
  return {backend, Availability::State::available, std::move(verdict.provider), {}, {}};
}

uint64_t registry_epoch() noexcept { return registry().epoch.load(); }

Status bind_package(PackageKernel kernel) {
  const std::string package = kernel.package;
  const std::string version = kernel.version;
  FOVEA_TRY(std::shared_ptr<const Backend> object, make_package_backend(std::move(kernel)));
  note_bound_package(package, version);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.packages[package] = std::move(object);
  r.loaded.clear();
  ++r.epoch;
  return {};
}

void unbind_package(std::string_view package) {
  forget_bound_package(package);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto bound = r.packages.find(package);
  if (bound == r.packages.end()) return;
  r.packages.erase(bound);
  r.loaded.clear();
  ++r.epoch;
}

Status set_path_loader(std::string_view scheme, PathLoader loader) {
  if (scheme.empty() || scheme == "builtin" || scheme == "package")
    return Error{ErrorCode::invalid_argument,
                 "set_path_loader: scheme '" + std::string(scheme) + "' cannot be replaced",
                 {}};
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.loaders[std::string(scheme)] = std::move(loader);
  r.loaded.clear();
  ++r.epoch;
  return {};
}

Result<std::shared_ptr<const Backend>> load_backend(BackendName backend,
                                                    std::string_view platform_path) {
  Registry& r = registry();
  std::string path(platform_path);
  uint64_t epoch = 0;
  {
    std::lock_guard lock(r.mutex);
    epoch = r.epoch;
    if (auto found = r.overrides.find(backend); found != r.overrides.end()) {
      if (found->second.object != nullptr) return found->second.object;
      path = found->second.path;
    }
    if (auto found = r.loaded.find(path); found != r.loaded.end()) return found->second;
  }
  if (path.empty())
    return Error{
        ErrorCode::not_built,
        name(backend) +
            " has no implementation in this build; register one with register_backend first",
        {{ReasonCode::not_registered, "backend", name(backend), "a registered implementation",
          "call register_backend"}}};
  FOVEA_TRY(std::shared_ptr<const Backend> object, load_path(backend, path));
  if (object == nullptr)
    return Error{ErrorCode::not_available,
                 name(backend) + ": the loader of '" + path + "' returned nothing",
                 {}};
  std::lock_guard lock(r.mutex);
  if (epoch == r.epoch) r.loaded[path] = object;
  return object;
}

}  // namespace fovea
