// One attention problem as a finished cuDNN graph. The only place that knows cuDNN; no header of it
// is needed to include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea::cudnn {

// What graphs may use at most; plans that need more are not taken.
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// Device pointers of one call. q, k, v and out have the strides of the problem, lse is
// [B,Hq,Sq]. The lengths, int32 [B], belong to a problem with key lengths; hidden rows of k and v
// are finite there.
struct Pointers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  const int32_t* q_lengths = nullptr;
  const int32_t* kv_lengths = nullptr;
  void* workspace = nullptr;  // kWorkspaceBytes, 256-byte aligned
};

class Graph {
 public:
  virtual ~Graph() = default;
  // Enqueues the call. Allocates no device memory and waits for nothing; inside a stream capture
  // the captured graph keeps this one alive. Thread-safe.
  virtual Status run(const Pointers& pointers, Stream stream) const noexcept = 0;
};

// Builds the graph for a device, which takes a few hundred milliseconds. Errors: not_available
// (libcudnn does not load), unsupported with cuDNN's own words, device_error.
Result<std::shared_ptr<const Graph>> build_graph(const Problem& problem, Device device);

}  // namespace fovea::cudnn
