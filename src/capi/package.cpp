#include "src/plugin/package.hpp"
#include "fovea/plugin.h"
#include "fovea/registry.hpp"
#include "src/capi/handles.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

extern "C" {

int32_t fovea_bind_package(const fovea_package* package, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_bind_package";
    FOVEA_TRY(const fovea_package given,
              fovea::capi::sized(package, kFunction, "package", fovea_package{}));
    if (given.package == nullptr) return null_argument(kFunction, "package->package");
    if (given.run == nullptr) return null_argument(kFunction, "package->run");
    FOVEA_TRY(fovea::PackageKernel kernel, fovea::plugin::make_kernel(given));
    return fovea::bind_package(std::move(kernel));
  });
}

void fovea_unbind_package(const char* package) {
  if (package != nullptr) fovea::unbind_package(package);
}

}  // extern "C"
