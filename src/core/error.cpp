#include "fovea/error.hpp"

namespace fovea {

std::string_view name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_config:
      return "invalid_config";
    case ErrorCode::invalid_problem:
      return "invalid_problem";
    case ErrorCode::invalid_facts:
      return "invalid_facts";
    case ErrorCode::invalid_file:
      return "invalid_file";
    case ErrorCode::invalid_tensor:
      return "invalid_tensor";
    case ErrorCode::invalid_value:
      return "invalid_value";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_built:
      return "not_built";
    case ErrorCode::not_available:
      return "not_available";
    case ErrorCode::device_error:
      return "device_error";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::workspace_too_small:
      return "workspace_too_small";
    case ErrorCode::communication_error:
      return "communication_error";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace fovea
