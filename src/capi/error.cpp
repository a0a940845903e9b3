#include <cstdlib>
#include <cstring>
#include <new>

#include "fovea/version.hpp"
#include "src/capi/handles.hpp"

namespace fovea::capi {

int32_t fail(Error error, fovea_error** out) {
  const int32_t code = static_cast<int32_t>(error.code);
  if (out == nullptr) return code;
  auto handle = std::make_unique<fovea_error>();
  for (const Reason& reason : error.reasons)
    handle->texts.push_back({std::string(name(reason.code)), sentence(reason)});
  handle->error = std::move(error);
  *out = handle.release();
  return code;
}

char* copy(const std::string& text) {
  char* bytes = static_cast<char*>(std::malloc(text.size() + 1));
  if (bytes != nullptr) std::memcpy(bytes, text.c_str(), text.size() + 1);
  return bytes;
}

}  // namespace fovea::capi

extern "C" {

const char* fovea_version(void) { return fovea::version(); }
int32_t fovea_c_api_version(void) { return FOVEA_C_API_VERSION; }

int32_t fovea_error_code(const fovea_error* error) {
  return error == nullptr ? FOVEA_OK : static_cast<int32_t>(error->error.code);
}

const char* fovea_error_code_name(int32_t code) {
  if (code == FOVEA_OK) return "ok";
  return fovea::name(static_cast<fovea::ErrorCode>(code)).data();
}

const char* fovea_error_message(const fovea_error* error) {
  return error == nullptr ? "" : error->error.message.c_str();
}

size_t fovea_error_reason_count(const fovea_error* error) {
  return error == nullptr ? 0 : error->error.reasons.size();
}

fovea_reason fovea_error_reason(const fovea_error* error, size_t index) {
  if (index >= fovea_error_reason_count(error)) return {"", "", "", "", "", ""};
  const fovea::Reason& r = error->error.reasons[index];
  const fovea_error::Texts& texts = error->texts[index];
  return {texts.code.c_str(), r.field.c_str(),  r.got.c_str(),
          r.accepted.c_str(), r.remedy.c_str(), texts.message.c_str()};
}

void fovea_error_free(fovea_error* error) { delete error; }

void fovea_string_free(char* text) { std::free(text); }

}  // extern "C"
