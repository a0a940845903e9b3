#include "src/cuda_device/graph_retention.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cuda {
namespace {

using State = std::shared_ptr<const void>;

// States without a graph, waiting to be dropped.
class Released {
 public:
  void add(State state) {
    const std::lock_guard lock(mutex_);
    states_.push_back(std::move(state));
  }
  std::vector<State> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(states_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<State> states_;
};

// Never destroyed: graphs may end after everything else.
Released& released() {
  static Released& instance = *new Released;
  return instance;
}

// Called by the driver when the last graph is gone.
void CUDART_CB let_go(void* held) {
  auto* const state = static_cast<State*>(held);
  released().add(std::move(*state));
  delete state;
}

cudaError_t capturing_graph(cudaStream_t stream, cudaGraph_t& graph) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive) return error;
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr);
#else
  return cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr);
#endif
}

}  // namespace

Status keep_while_captured(State state, Stream stream) {
  constexpr std::string_view kDoing = "keeping a plan for a captured graph";
  cudaGraph_t graph = nullptr;
  FOVEA_CHECK(check(capturing_graph(static_cast<cudaStream_t>(stream.handle), graph), kDoing));
  if (graph == nullptr) return {};
  auto held = std::make_unique<State>(std::move(state));
  cudaUserObject_t object = nullptr;
  FOVEA_CHECK(
      check(cudaUserObjectCreate(&object, held.get(), let_go, 1, cudaUserObjectNoDestructorSync),
            kDoing));
  held.release();
  const cudaError_t error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (error != cudaSuccess) cudaUserObjectRelease(object, 1);
  return check(error, kDoing);
}

void drop_released_states() { released().take().clear(); }

}  // namespace fovea::cuda
