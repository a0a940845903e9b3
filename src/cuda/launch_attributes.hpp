// Launch attributes of kernels that overlap with their neighbours in a stream.
#pragma once

#include <cuda_runtime.h>

#include <array>

namespace fovea::cuda {

/// Clusters of `cluster` thread blocks, and programmatic dependent launch: the kernel may start
/// while the one before it in the stream ends, and calls wait_for_earlier_launches (ptx.cuh) before
/// it touches global memory. Must outlive the launch that it configures.
class LaunchAttributes {
 public:
  explicit LaunchAttributes(int cluster = 1) {
    if (cluster > 1) {
      list_[count_].id = cudaLaunchAttributeClusterDimension;
      list_[count_++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    }
    if (overlaps()) {
      list_[count_].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      list_[count_++].val.programmaticStreamSerializationAllowed = 1;
    }
  }
  void add_to(cudaLaunchConfig_t& config) {
    config.attrs = list_.data();
    config.numAttrs = count_;
  }

 private:
  /// Older drivers cannot capture such a launch in a graph.
  static bool overlaps() {
    static const bool supported = [] {
      int version = 0;
      return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
    }();
    return supported;
  }

  std::array<cudaLaunchAttribute, 2> list_{};
  unsigned count_ = 0;
};

}  // namespace fovea::cuda
