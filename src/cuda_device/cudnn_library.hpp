// libcudnn, loaded when it is first needed.
#pragma once

#include <string>

#include "fovea/error.hpp"

namespace fovea::cuda {

struct CudnnLibrary {
  void* handle = nullptr;  // of dlopen
  std::string file;        // as it was asked for
  std::string version;     // "9.19.0"
};

// Loads the library once per process: the file of set_cudnn_file, else libcudnn.so.9 where the
// loader finds it. Error not_available says what the loader said and what to install; asking again
// tries again. Thread-safe; static storage.
Result<const CudnnLibrary*> load_cudnn();

// The file to load. Error invalid_argument once another one is loaded. Thread-safe.
Status set_cudnn_file(std::string file);

}  // namespace fovea::cuda
