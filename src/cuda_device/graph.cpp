#include "src/cuda_device/graph.hpp"

#include <cuda_runtime_api.h>

#include "src/cuda_device/runtime_error.hpp"

namespace fovea::cuda {
namespace {

cudaStream_t handle(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

Result<Graph> Graph::capture(Stream stream, const std::function<Status()>& work) {
  FOVEA_CHECK(check(cudaStreamBeginCapture(handle(stream), cudaStreamCaptureModeThreadLocal),
                    "beginning a capture"));
  const Status done = work();
  // Ended also after a failure, which leaves the stream usable.
  cudaGraph_t captured = nullptr;
  const Status ended =
      check(cudaStreamEndCapture(handle(stream), &captured), "capturing a call in a graph");
  const std::shared_ptr<void> graph(captured, [](void* g) {
    if (g != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(g));
  });
  if (!done) return done.error();
  if (!ended) return ended.error();
  cudaGraphExec_t executable = nullptr;
  FOVEA_CHECK(check(cudaGraphInstantiate(&executable, captured, 0), "instantiating a graph"));
  Graph result;
  result.executable_ = std::shared_ptr<void>(
      executable, [](void* g) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(g)); });
  return result;
}

Status Graph::launch(Stream stream) const {
  return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), handle(stream)),
               "launching a graph");
}

}  // namespace fovea::cuda
