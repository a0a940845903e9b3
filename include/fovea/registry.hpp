// What stands behind each name. The public names never change; what they load may.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fovea/backend.hpp"
#include "fovea/backend_name.hpp"
#include "fovea/error.hpp"
#include "fovea/package_kernel.hpp"
#include "fovea/platform.hpp"

namespace fovea {

// The process-wide registry, behind a lock. Changes bump the epoch, so caches made before are not
// used again.

// Puts a backend object, or a path ("builtin:cpu_flash", "plugin:/lib.so#name"), behind a name on
// every platform. Error invalid_argument for a null object or a malformed path.
FOVEA_API Status register_backend(BackendName name, std::shared_ptr<const Backend> backend);
FOVEA_API Status register_backend(BackendName name, std::string_view path);
// Restores what the platform puts behind the name. No effect when not overridden.
FOVEA_API void clear_override(BackendName name);
FOVEA_API bool is_overridden(BackendName name);
// availability() of fovea/platform.hpp for what stands behind the name now: a registration stands
// in for what is not built. Thread-safe.
FOVEA_API Availability current_availability(BackendName name, const Platform& platform);
// Changes with every registration.
FOVEA_API uint64_t registry_epoch() noexcept;

// The backend behind `name`: the override if there is one, else `platform_path`; loaded on first
// use. Errors: not_built (in-tree path that this binary lacks), not_available (plugin failed to
// load), invalid_argument (no path: "register it first").
FOVEA_API Result<std::shared_ptr<const Backend>> load_backend(BackendName name,
                                                              std::string_view platform_path);

// Gives the package's kernel to every name whose policy row the package provides, on the platforms
// that admit it; replaces an earlier one. Error invalid_argument: no package name or no run
// function.
FOVEA_API Status bind_package(PackageKernel kernel);
// No effect when nothing is bound.
FOVEA_API void unbind_package(std::string_view package);

// Loads what stands after the colon of a path of one scheme ("plugin" in "plugin:/lib.so#name").
using PathLoader = std::function<Result<std::shared_ptr<const Backend>>(std::string_view rest)>;

// Makes a scheme loadable. "builtin" and "package" are always there and cannot be replaced
// (invalid_argument).
FOVEA_API Status set_path_loader(std::string_view scheme, PathLoader loader);

}  // namespace fovea
