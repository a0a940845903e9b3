// What a block list costs: time against density * (time of the dense call), for random lists.
//   build/bench/block_list_bench [isa] [calls]
// calls: over a list after every dense call, 1 by default; with more, caches hold what they need.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fovea/executor.hpp"
#include "src/backends/cpu_flash/cpu_flash.hpp"
#include "src/backends/cpu_flash/kernel_table.hpp"

namespace fovea::cpu_flash {
namespace {

constexpr int64_t kSeq = 8192;

struct Lists {
  std::vector<int32_t> counts, indices;
  double density = 0;
};

// The same number of blocks in every row, at random places, in ascending order.
Lists random_lists(int64_t blocks, double density, unsigned seed) {
  const auto kept = static_cast<int64_t>(std::ceil(density * static_cast<double>(blocks)));
  Lists lists;
  lists.density = static_cast<double>(kept) / static_cast<double>(blocks);
  std::mt19937 engine(seed);
  std::vector<int32_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t row = 0; row < blocks; ++row) {
    std::shuffle(order.begin(), order.end(), engine);
    std::sort(order.begin(), order.begin() + kept);
    lists.counts.push_back(static_cast<int32_t>(kept));
    lists.indices.insert(lists.indices.end(), order.begin(), order.end());
  }
  return lists;
}

double once_ms(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// One dtype and head size: every list interleaved with the dense call.
void compare(simd::Isa isa, FloatType dtype, int64_t head_dim, int calls) {
  const KernelTable* const kernels = find_kernels(isa, dtype);
  if (kernels == nullptr) return;
  const int64_t bytes = dtype == FloatType::f32 ? 4 : 2;
  const auto elements = static_cast<size_t>(kSeq * head_dim);
  // Small values of any type: the bit pattern of 0.01 in each half.
  std::vector<uint16_t> q(elements * static_cast<size_t>(bytes) / 2, 0x3c24), k = q, v = q, out = q;
  Params params;
  params.dtype = params.out_dtype = dtype;
  params.batch = params.heads_q = params.heads_kv = 1;
  params.seq_q = params.seq_kv = kSeq;
  params.head_dim = params.dim_v = head_dim;
  params.scale = 0.1f;
  params.q = {q.data(), 0, head_dim, 0};
  params.k = {k.data(), 0, head_dim, 0};
  params.v = {v.data(), 0, head_dim, 0};
  params.out = out.data();
  params.out_seq = head_dim;
  Executor& executor = serial_executor();

  const auto prepared = [&](const Params& call) {
    const size_t size = (workspace_bytes(call, *kernels, 1) + 63) / 64 * 64;
    std::shared_ptr<void> memory(std::aligned_alloc(64, size), std::free);
    return [=, &executor] { run(call, *kernels, memory.get(), executor); };
  };
  const std::function<void()> dense = prepared(params);
  for (int i = 0; i < 3; ++i) dense();
  for (const int32_t block : {64, 128}) {
    for (const double density : {0.1, 0.2, 0.4, 0.8}) {
      const Lists lists = random_lists(kSeq / block, density, 1);
      Params call = params;
      call.blocks = {.counts = lists.counts.data(),
                     .indices = lists.indices.data(),
                     .max_count = kSeq / block,
                     .block_q = block,
                     .block_kv = block};
      const std::function<void()> sparse = prepared(call);
      sparse();
      std::vector<double> dense_ms, sparse_ms;
      for (int i = 0; i < 5; ++i) {
        dense_ms.push_back(once_ms(dense));
        for (int n = 0; n < calls; ++n) sparse_ms.push_back(once_ms(sparse));
      }
      const double full = median(dense_ms), part = median(sparse_ms);
      std::printf("%-16s %-4s d%-4ld block %-4d density %.3f  %8.3f ms of %8.3f  %.3f x density\n",
                  kernels->name, dtype == FloatType::f32 ? "f32" : "bf16",
                  static_cast<long>(head_dim), block, lists.density, part, full,
                  part / full / lists.density);
    }
  }
}

}  // namespace
}  // namespace fovea::cpu_flash

int main(int argc, char** argv) {
  using namespace fovea;
  const auto isa = argc > 1 ? simd::parse_isa(argv[1]) : simd::preferred_isa();
  if (!isa || !simd::includes(simd::probe_isa(), *isa)) {
    std::fprintf(stderr, "block_list_bench: this machine has no %s\n", argv[1]);
    return 2;
  }
  const int calls = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 1;
  for (const auto dtype : {cpu_flash::FloatType::f32, cpu_flash::FloatType::bf16}) {
    for (const int64_t head_dim : {64, 128}) cpu_flash::compare(*isa, dtype, head_dim, calls);
  }
  return 0;
}
