// The plain kernel against a float64 oracle on the GPU. Standalone: cuda_sdpa_test [seed] [first
// case] [one]
#include "src/backends/cuda_sdpa/launch.hpp"
#include "tests/gpu/attention_cases.cuh"

namespace {

bool launch(Type type, const fovea::cuda::AttentionCall& call, bool, cudaStream_t stream) {
  using namespace fovea::cuda_sdpa;
  const fovea::cuda_sdpa::Type element = type == ::Type::f32    ? fovea::cuda_sdpa::Type::f32
                                         : type == ::Type::bf16 ? fovea::cuda_sdpa::Type::bf16
                                                                : fovea::cuda_sdpa::Type::f16;
  const int error = fovea::cuda_sdpa::launch(element, call, 0, stream);
  if (error) std::printf("launch: %s (%d)\n", describe(error), error);
  return error == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const std::size_t from = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<cases::Case> all = cases::make_cases(
      {Type::bf16, Type::f16, Type::f32}, {{128, 128}, {64, 64}, {80, 48}, {33, 5}, {300, 512}});
  cases::Totals totals;
  for (std::size_t i = from; i < all.size(); i++) {
    totals.add(all[i], cases::run(all[i], launch, seed, stream));
    if (argc > 3) break;
  }
  return totals.print("cuda_sdpa_test", seed);
}
