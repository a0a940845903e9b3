// What a cached decision costs, and that it allocates nothing.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fovea/fovea.hpp"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace fovea {
namespace {

Problem wan_problem(int64_t seq_kv) {
  Problem p;
  p.dtype = p.out_dtype = kBF16;
  p.heads_q = p.heads_kv = 40;
  p.seq_q = 75600;
  p.seq_kv = seq_kv;
  p.head_dim = p.dim_v = 128;
  fill_strides(p);
  return p;
}

// The same problem again, as in a layer that is called once per step.
void cached_decision(benchmark::State& state) {
  const AttentionConfig config;
  const Selector selector(make_platform(*preset_facts("cpu")), config);
  const RoleQuery query;
  const ExecutionContext context;
  const Problem problem = wan_problem(75600);
  (void)selector.decide(query, problem, context);
  const int64_t before = allocations;
  for (auto _ : state) benchmark::DoNotOptimize(selector.decide(query, problem, context));
  state.counters["allocations"] = static_cast<double>(allocations - before);
}
BENCHMARK(cached_decision);

// Two problems in turn, as self- and cross-attention of one model: found in the cache, not the last
// one.
void alternating_decisions(benchmark::State& state) {
  const AttentionConfig config;
  const Selector selector(make_platform(*preset_facts("cpu")), config);
  const RoleQuery query;
  const ExecutionContext context;
  const Problem problems[] = {wan_problem(75600), wan_problem(512)};
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(selector.decide(query, problems[i++ % 2], context));
}
BENCHMARK(alternating_decisions);

}  // namespace
}  // namespace fovea

BENCHMARK_MAIN();
