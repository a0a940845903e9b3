#include "src/plugin/package.hpp"

#include <optional>
#include <string>
#include <utility>

#include "fovea/validation.hpp"
#include "src/plugin/adapter.hpp"
#include "src/plugin/wire.hpp"

namespace fovea::plugin {
namespace {

constexpr int32_t kLargestCode = 999;

Status run(const fovea_package& package, const std::string& who, const PackageCall& call) {
  const WireProblem problem(call.problem);
  const std::string backend = name(call.backend);
  const std::string path(call.path);
  fovea_plugin_run tensors{};
  tensors.struct_size = sizeof tensors;
  tensors.q = to_wire(call.tensors.q);
  tensors.k = to_wire(call.tensors.k);
  tensors.v = to_wire(call.tensors.v);
  tensors.out = to_wire(call.tensors.out);
  tensors.lse = to_wire(call.tensors.lse);
  tensors.mask = to_wire(call.tensors.mask);
  tensors.kv_lengths = to_wire(call.tensors.kv_lengths);
  tensors.cu_seqlens_q = to_wire(call.tensors.cu_seqlens_q);
  tensors.cu_seqlens_kv = to_wire(call.tensors.cu_seqlens_kv);
  tensors.stream = call.stream.handle;
  const fovea_package_call wire{sizeof wire,   backend.c_str(), path.c_str(),
                                problem.get(), &tensors,        call.valid_queries};
  Sink sink;
  const int32_t code = package.run(package.self, &wire, sink.get());
  if (code == FOVEA_OK) return {};
  const auto known = static_cast<ErrorCode>(code);
  const bool understood = code > 0 && code <= kLargestCode && name(known) != "unknown";
  return Error{understood ? known : ErrorCode::device_error,
               "package " + who + ": " +
                   (sink.message().empty() ? "its kernel failed with code " + std::to_string(code)
                                           : sink.message()),
               std::move(sink.reasons())};
}

}  // namespace

Result<PackageKernel> make_kernel(const fovea_package& given) {
  PackageKernel kernel;
  kernel.package = read_text(given.package);
  kernel.version = read_text(given.version);
  if (given.validation_record != nullptr) {
    FOVEA_TRY(kernel.validation, ValidationFile::open(read_text(given.validation_record)));
  }
  kernel.reads_options = false;  // the call struct has no words for them
  kernel.run = [given, who = kernel.package](const PackageCall& call) {
    return run(given, who, call);
  };
  if (given.validate_dims != nullptr)
    kernel.validate_dims = [given, who = kernel.package](
                               int64_t head_dim, int64_t dim_v,
                               int64_t alignment) -> std::optional<std::string> {
      Sink sink;
      int32_t code = FOVEA_OK;
      const Status done = guarded(who, "validate_dims", [&] {
        code = given.validate_dims(given.self, head_dim, dim_v, alignment, sink.get());
      });
      if (!done) return done.error().message;
      if (code == FOVEA_OK) return std::nullopt;
      return sink.message().empty() ? "sizes that the package takes" : sink.message();
    };
  if (given.refuse != nullptr)
    kernel.refusals = [given, who = kernel.package](BackendName backend, const Problem& problem) {
      const WireProblem wire(problem);
      Sink sink;
      Status done = guarded(who, "refuse", [&] {
        given.refuse(given.self, name(backend).c_str(), wire.get(), sink.get());
      });
      if (!done) return std::move(done.error().reasons);
      return std::move(sink.reasons());
    };
  return Result<PackageKernel>(std::move(kernel));
}

Result<PackageKernel> read_package(const fovea_package* given, std::string_view who) {
  constexpr size_t kRequired = offsetof(fovea_package, validate_dims);
  FOVEA_TRY(const fovea_package read, read_struct(given, kRequired, who, "a package"));
  if (read_text(read.package).empty()) return misbehaved(who, "the name of a package is NULL");
  if (read.run == nullptr)
    return misbehaved(who, "package " + read_text(read.package) + " lacks the entry run");
  Result<PackageKernel> kernel = make_kernel(read);
  if (!kernel) return misbehaved(who, kernel.error().message);
  return kernel;
}

}  // namespace fovea::plugin
