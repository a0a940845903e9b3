// One attention call through the C++ interface: with q = k = 0 every key weighs the same, so the
// output is the mean of v.

#include <cmath>
#include <cstdio>
#include <vector>

#include "fovea/fovea.hpp"

int main() {
  constexpr int64_t kSeqQ = 3, kSeqKv = 5, kHeads = 2, kHeadDim = 8;
  std::vector<float> q(kSeqQ * kHeads * kHeadDim), k(kSeqKv * kHeads * kHeadDim), v(k.size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / (kHeads * kHeadDim));

  const auto result =
      fovea::attention(fovea::make_view(q.data(), fovea::kF32, {1, kSeqQ, kHeads, kHeadDim}),
                       fovea::make_view(k.data(), fovea::kF32, {1, kSeqKv, kHeads, kHeadDim}),
                       fovea::make_view(v.data(), fovea::kF32, {1, kSeqKv, kHeads, kHeadDim}));
  if (!result) {
    std::fprintf(stderr, "attention failed: %s\n", result.error().message.c_str());
    return 1;
  }
  const fovea::TensorView& out = result->out.view();
  const float* values = static_cast<const float*>(out.data);
  for (int64_t i = 0; i < out.numel(); ++i) {
    if (std::fabs(values[i] - 2.0f) > 1e-6f) {
      std::fprintf(stderr, "element %d is %g, not 2\n", static_cast<int>(i), values[i]);
      return 1;
    }
  }
  std::printf("fovea %s from C++: %s\n", fovea::version(), result->receipt->path.c_str());
  return 0;
}
