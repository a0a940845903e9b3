#include "fovea/config.hpp"

#include "src/capi/handles.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

extern "C" {

int32_t fovea_config_create(const char* json, const char* backend, int32_t use_environment,
                            fovea_config** config, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (config == nullptr) return null_argument("fovea_config_create", "config");
    fovea::ConfigSources sources;
    if (json != nullptr) sources.text = json;
    if (backend != nullptr) sources.backend = backend;
    if (use_environment != 0) sources.environment = fovea::environment_backend();
    FOVEA_TRY(fovea::AttentionConfig built, fovea::build_config(sources));
    *config = new fovea_config{std::move(built)};
    return {};
  });
}

int32_t fovea_config_to_json(const fovea_config* config, char** json, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (config == nullptr) return null_argument("fovea_config_to_json", "config");
    if (json == nullptr) return null_argument("fovea_config_to_json", "json");
    *json = fovea::capi::copy(fovea::to_json(config->config));
    return {};
  });
}

void fovea_config_free(fovea_config* config) { delete config; }

}  // extern "C"
