#include "fovea/package_kernel.hpp"

#include "fovea/plugin.h"
#include "fovea/registry.hpp"
#include "src/capi/handles.hpp"
#include "src/plugin/wire.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace fovea::capi {
namespace {

Status run(const fovea_package& package, const std::string& who, const PackageCall& call) {
  const plugin::WireProblem problem(call.problem);
  const std::string backend = name(call.backend);
  const std::string path(call.path);
  fovea_plugin_run tensors{};
  tensors.struct_size = sizeof tensors;
  tensors.q = plugin::to_wire(call.tensors.q);
  tensors.k = plugin::to_wire(call.tensors.k);
  tensors.v = plugin::to_wire(call.tensors.v);
  tensors.out = plugin::to_wire(call.tensors.out);
  tensors.lse = plugin::to_wire(call.tensors.lse);
  tensors.mask = plugin::to_wire(call.tensors.mask);
  tensors.kv_lengths = plugin::to_wire(call.tensors.kv_lengths);
  tensors.cu_seqlens_q = plugin::to_wire(call.tensors.cu_seqlens_q);
  tensors.cu_seqlens_kv = plugin::to_wire(call.tensors.cu_seqlens_kv);
  tensors.stream = call.stream.handle;
  const fovea_package_call wire{sizeof wire,   backend.c_str(), path.c_str(),
                                problem.get(), &tensors,        call.valid_queries};
  plugin::Sink sink;
  const int32_t code = package.run(package.self, &wire, sink.get());
  if (code == FOVEA_OK) return {};
  const auto known = static_cast<ErrorCode>(code);
  return Error{name(known) == "unknown" ? ErrorCode::device_error : known,
               "package " + who + ": " +
                   (sink.message().empty() ? "its kernel failed with code " + std::to_string(code)
                                           : sink.message()),
               std::move(sink.reasons())};
}

}  // namespace
}  // namespace fovea::capi

extern "C" {

int32_t fovea_bind_package(const fovea_package* package, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_bind_package";
    FOVEA_TRY(const fovea_package given,
              fovea::capi::sized(package, kFunction, "package", fovea_package{}));
    if (given.package == nullptr) return null_argument(kFunction, "package->package");
    if (given.run == nullptr) return null_argument(kFunction, "package->run");
    fovea::PackageKernel kernel;
    kernel.package = fovea::plugin::read_text(given.package);
    kernel.version = fovea::plugin::read_text(given.version);
    kernel.validation_record = fovea::plugin::read_text(given.validation_record);
    kernel.reads_options = false;  // the call struct has no words for them
    kernel.run = [given, who = kernel.package](const fovea::PackageCall& call) {
      return fovea::capi::run(given, who, call);
    };
    if (given.validate_dims != nullptr)
      kernel.validate_dims = [given](int64_t head_dim, int64_t dim_v,
                                     int64_t alignment) -> std::optional<std::string> {
        fovea::plugin::Sink sink;
        if (given.validate_dims(given.self, head_dim, dim_v, alignment, sink.get()) == FOVEA_OK)
          return std::nullopt;
        return sink.message().empty() ? "sizes that the package takes" : sink.message();
      };
    if (given.refuse != nullptr)
      kernel.refusals = [given](fovea::BackendName backend, const fovea::Problem& problem) {
        const fovea::plugin::WireProblem wire(problem);
        fovea::plugin::Sink sink;
        given.refuse(given.self, name(backend).c_str(), wire.get(), sink.get());
        return std::move(sink.reasons());
      };
    return fovea::bind_package(std::move(kernel));
  });
}

void fovea_unbind_package(const char* package) {
  if (package != nullptr) fovea::unbind_package(package);
}

}  // extern "C"
