// From codes of the CUDA runtime to errors.
#pragma once

#include <string_view>

#include "fovea/error.hpp"

namespace fovea::cuda {

// What was being done, what the runtime says of `code` (a cudaError_t other than success), and what
// to do about it. Code out_of_memory or device_error. Clears the runtime's error of this thread.
Error runtime_error(int code, std::string_view doing);

// Success for cudaSuccess.
Status check(int code, std::string_view doing);

}  // namespace fovea::cuda
