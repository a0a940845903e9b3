#include "src/cuda_device/cudnn_library.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <mutex>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::cuda {
namespace {

class Loader {
 public:
  Result<const CudnnLibrary*> load() {
    const std::lock_guard lock(mutex_);
    if (library_.handle != nullptr) return &library_;
    void* const handle = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* why = dlerror();
      return absent(text::concat("it did not load: ", why == nullptr ? "no reason given" : why));
    }
    const auto version = reinterpret_cast<size_t (*)()>(dlsym(handle, "cudnnGetVersion"));
    if (version == nullptr) {
      dlclose(handle);
      return absent("it has no cudnnGetVersion");
    }
    const size_t number = version();
    library_.version = text::concat(number / 10000, '.', number % 10000 / 100, '.', number % 100);
    library_.file = file_;
    library_.handle = handle;
    return &library_;
  }

  Status set_file(std::string file) {
    const std::lock_guard lock(mutex_);
    if (library_.handle != nullptr && file != library_.file)
      return Error{ErrorCode::invalid_argument,
                   text::concat("cuDNN is loaded from ", text::quote(library_.file),
                                " already; name the file before the first call on a GPU"),
                   {}};
    file_ = std::move(file);
    return {};
  }

 private:
  Error absent(std::string_view why) const {
    return {ErrorCode::not_available,
            text::concat("cuDNN: ", text::quote(file_), ": ", why,
                         "; pip install nvidia-cudnn-cu13, or apt-get install cudnn9-cuda-13, or "
                         "name the file"),
            {}};
  }

  std::mutex mutex_;
  std::string file_ = "libcudnn.so.9";
  CudnnLibrary library_;  // stays loaded
};

Loader& loader() {
  static Loader instance;
  return instance;
}

}  // namespace

Result<const CudnnLibrary*> load_cudnn() { return loader().load(); }

Status set_cudnn_file(std::string file) { return loader().set_file(std::move(file)); }

}  // namespace fovea::cuda
