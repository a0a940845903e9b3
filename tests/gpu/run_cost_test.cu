// What Plan::run costs on the host: the median of 10,000 calls that do not wait, each with other
// pointers than the one before, beside launches of an empty kernel. Fails above one microsecond
// more.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "fovea/fovea.hpp"

namespace {

constexpr int kCalls = 10000, kGroup = 100, kBuffers = 16;
constexpr double kAllowed = 1.0;

__global__ void empty_kernel() {}

template <class Call>
void measure(std::vector<double>& microseconds, Call call) {
  for (int i = 0; i < kGroup; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call(i);
    const auto end = std::chrono::steady_clock::now();
    microseconds.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  cudaDeviceSynchronize();  // the queue of launches never fills
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int fail(const char* what) {
  std::printf("run_cost_test: %s\n", what);
  return 1;
}

}  // namespace

int main() {
  using namespace fovea;
  const Device device{DeviceType::cuda, 0};
  const auto problem = parse_problem("bf16 b1 h2 s128 d128 lse=1");
  if (!problem) return fail("no problem");
  const auto layer = Attention::create({}, {});
  if (!layer) return fail(layer.error().message.c_str());
  const auto plan = layer->plan(*problem, device);
  if (!plan) return fail(plan.error().message.c_str());

  const size_t tensor = 2 * 128 * 128 * 2, lse = 2 * 128 * 4;
  const size_t workspace = (*plan)->workspace_bytes();
  std::array<AttentionTensors, kBuffers> calls;
  std::array<void*, kBuffers> scratch{};
  for (int n = 0; n < kBuffers; ++n) {
    const auto view = [&](DType dtype, std::initializer_list<int64_t> shape, size_t bytes) {
      void* data = nullptr;
      if (cudaMalloc(&data, bytes) == cudaSuccess) cudaMemset(data, 0x3c, bytes);
      return make_view(data, dtype, shape, device);
    };
    AttentionTensors& t = calls[n];
    t.q = view(kBF16, {1, 128, 2, 128}, tensor);
    t.k = view(kBF16, {1, 128, 2, 128}, tensor);
    t.v = view(kBF16, {1, 128, 2, 128}, tensor);
    t.out = view(kBF16, {1, 128, 2, 128}, tensor);
    t.lse = view(kF32, {1, 2, 128}, lse);
    if (cudaMalloc(&scratch[n], workspace) != cudaSuccess) return fail("out of memory");
  }
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  bool ran = true;
  const auto run = [&](int i) {
    const int n = i % kBuffers;
    ran &= (*plan)->run(calls[n], {scratch[n], workspace}, Stream{stream}).has_value();
  };
  const auto launch = [&](int) { empty_kernel<<<1, 32, 0, stream>>>(); };
  std::vector<double> warm, ours, empty;
  measure(warm, run);
  measure(warm, launch);
  for (int group = 0; group < kCalls / kGroup; ++group) {
    measure(ours, run);
    measure(empty, launch);
  }
  if (!ran || cudaGetLastError() != cudaSuccess) return fail("a call failed");
  const double run_cost = median(ours), launch_cost = median(empty);
  std::printf("run_cost_test: Plan::run %.2f us, an empty kernel %.2f us, %d calls each\n",
              run_cost, launch_cost, kCalls);
  return run_cost <= launch_cost + kAllowed ? 0 : 1;
}
