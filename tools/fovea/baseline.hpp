// What a program without a flash kernel does: the whole score matrix, its softmax, then the
// weighted sum of V.
#pragma once

#include <vector>

#include "fovea/backend.hpp"
#include "fovea/executor.hpp"
#include "fovea/problem.hpp"

namespace fovea::cli {

class MaterialisedSoftmax {
 public:
  // Whether the baseline covers the problem and its score matrices fit in memory: dense, not
  // causal, without LSE.
  static bool covers(const Problem& problem, int workers) noexcept;

  // The tensors must outlive the object.
  MaterialisedSoftmax(const Problem& problem, const AttentionTensors& tensors, Executor& executor);

  // float32 [B,Sq,Hq,Dv], whatever the type of the inputs.
  void run() noexcept;
  const std::vector<float>& output() const noexcept { return output_; }

 private:
  // Buffers of one worker: a head's K transposed, its V and the score matrix.
  struct Scratch {
    std::vector<float> keys, values, scores;
  };
  void run_head(int64_t batch, int64_t head, Scratch& scratch) noexcept;

  const Problem problem_;
  const AttentionTensors tensors_;
  Executor& executor_;
  std::vector<Scratch> scratch_;
  std::vector<float> output_;
};

}  // namespace fovea::cli
