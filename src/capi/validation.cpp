#include <map>
#include <memory>
#include <string>

#include "fovea/plugin.h"
#include "src/capi/handles.hpp"
#include "src/plugin/wire.hpp"
#include "src/validation/record.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

extern "C" {

int32_t fovea_validate_path(const fovea_config* config, const fovea_validation_options* options,
                            char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_validate_path";
    constexpr size_t kMostSoftware = 64;
    FOVEA_TRY(const fovea_validation_options o,
              fovea::capi::sized(options, kFunction, "options", fovea_validation_options{}));
    if (config == nullptr) return null_argument(kFunction, "config");
    if (o.device == nullptr) return null_argument(kFunction, "options->device");
    if (json == nullptr) return null_argument(kFunction, "json");
    if (o.software_count > kMostSoftware)
      return fovea::Error{fovea::ErrorCode::invalid_argument,
                          std::string(kFunction) + ": options->software_count is " +
                              std::to_string(o.software_count) + " (accepted: at most 64)",
                          {}};
    if (o.software_count > 0 && o.software == nullptr)
      return null_argument(kFunction, "options->software");
    std::map<std::string, std::string> software;
    for (size_t i = 0; i < o.software_count; ++i) {
      FOVEA_TRY(
          const fovea_software each,
          fovea::capi::sized(o.software[i], kFunction, "options->software[i]", fovea_software{}));
      software[fovea::plugin::read_text(each.name)] = fovea::plugin::read_text(each.version);
    }
    fovea::LayerOptions layer;
    if (o.role != nullptr) layer.role = o.role;
    if (o.category != nullptr) layer.category = o.category;
    FOVEA_TRY(const std::unique_ptr<fovea::validation::RunDevice> device,
              fovea::validation::open_device(o.device, o.access));
    const std::unique_ptr<fovea::Executor> executor = fovea::make_openmp_executor(o.threads);
    fovea::validation::Progress progress;
    if (o.progress != nullptr)
      progress = [&](size_t done, size_t total, const std::string& problem) {
        o.progress(o.user, done, total, problem.c_str());
      };
    FOVEA_TRY(const fovea::validation::ContractRun run,
              fovea::validation::run_contract(config->config, layer, *device, *executor, progress));
    *json = fovea::capi::copy(fovea::validation::record_text(run, software));
    if (*json == nullptr)
      return fovea::Error{fovea::ErrorCode::out_of_memory, "no memory for the record", {}};
    return {};
  });
}

}  // extern "C"
