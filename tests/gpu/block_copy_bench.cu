// What bulk tensor copies of blocks of 64 keys reach from the L2 cache without any arithmetic,
// which bounds attention over lists of 64 x 64 blocks where every row copies K and V, 32 KB, for
// every block that it lists. Not a test: prints a table. Twelve heads of 32,768 keys, head
// dimension 128, bf16; every thread block copies random blocks of one head after the other.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/cuda/ptx.cuh"
#include "src/cuda/tensor_map.hpp"

#define CHECK(x)                                                       \
  do {                                                                 \
    if (const int e_ = static_cast<int>(x); e_ != 0) {                 \
      std::printf("%s:%d %s: error %d\n", __FILE__, __LINE__, #x, e_); \
      std::exit(2);                                                    \
    }                                                                  \
  } while (0)

namespace cuda = fovea::cuda;

namespace {

constexpr int kHeads = 12, kSeq = 32768, kDim = 128, kBlock = 64, kPerHead = 512;
constexpr uint32_t kBytes = kBlock * kDim * 2;

template <int kStages>
__global__ void copy_kernel(const __grid_constant__ CUtensorMap k,
                            const __grid_constant__ CUtensorMap v) {
  extern __shared__ __align__(1024) uint8_t storage[];
  if (threadIdx.x != 0) return;
  const uint32_t shared = cuda::shared_address(storage), bars = shared + kStages * kBytes;
  for (int i = 0; i < kStages; i++) cuda::mbarrier_init(bars + 8 * i, 1);
  cuda::mbarrier_init_fence();
  constexpr int kAll = kHeads * kPerHead;
  uint32_t random = blockIdx.x * 7919 + 1;
  const auto copy = [&](int n) {
    random = random * 1664525u + 1013904223u;
    const int row = static_cast<int>((random >> 8) % (kSeq / kBlock)) * kBlock;
    const uint32_t stage = n % kStages, bar = bars + 8 * stage;
    cuda::mbarrier_expect(bar, kBytes);
    for (int panel = 0; panel < 2; panel++)
      cuda::tensor_load(shared + stage * kBytes + panel * (kBytes / 2), n % 2 ? &v : &k, bar, 0,
                        row, panel, n / kPerHead, 0, cuda::kEvictLast);
  };
  for (int n = 0; n < kStages; n++) copy(n);
  for (int n = 0; n < kAll; n++) {
    cuda::mbarrier_wait(bars + 8 * (n % kStages), n / kStages & 1);
    if (n + kStages < kAll) copy(n + kStages);
  }
}

template <int kStages>
void measure(bool heads_first, int blocks_per_sm, const void* k, const void* v, int processors) {
  const std::int64_t row = heads_first ? kDim : kHeads * kDim;
  const std::int64_t head = heads_first ? std::int64_t{kSeq} * kDim : kDim;
  const cuda::MapShape shape{kDim, kSeq, kHeads, 1, row, head, std::int64_t{kSeq} * kHeads * kDim};
  CUtensorMap maps[2];
  CHECK(cuda::encode_tensor_map(&maps[0], k, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, shape, kBlock, 1));
  CHECK(cuda::encode_tensor_map(&maps[1], v, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, shape, kBlock, 1));
  const int shared = kStages * static_cast<int>(kBytes) + 1024, grid = processors * blocks_per_sm;
  CHECK(cudaFuncSetAttribute(copy_kernel<kStages>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 15; i++) {
    CHECK(cudaEventRecord(start));
    copy_kernel<kStages><<<grid, 32, shared>>>(maps[0], maps[1]);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  const double terabytes = 1e-12 * kBytes * kHeads * kPerHead * grid;
  std::printf("%s, %d thread blocks on a multiprocessor, %d KB under way in each: %.2f TB/s\n",
              heads_first ? "[B,H,S,D]" : "[B,S,H,D]", blocks_per_sm, kStages * 16,
              terabytes / (1e-3 * times[times.size() / 2]));
}

}  // namespace

int main() {
  int processors = 0;
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  void* tensors[2];
  const std::size_t elements = std::size_t{kHeads} * kSeq * kDim;
  std::vector<std::uint16_t> x(elements);
  for (std::size_t i = 0; i < elements; i++)
    x[i] = static_cast<std::uint16_t>(0x3f00 | ((i * 2654435761u) >> 16 & 0x80ff));
  for (void*& tensor : tensors) {
    CHECK(cudaMalloc(&tensor, 2 * elements));
    CHECK(cudaMemcpy(tensor, x.data(), 2 * elements, cudaMemcpyHostToDevice));
  }
  for (const bool heads_first : {false, true}) {
    measure<12>(heads_first, 1, tensors[0], tensors[1], processors);
    measure<6>(heads_first, 2, tensors[0], tensors[1], processors);
  }
}
