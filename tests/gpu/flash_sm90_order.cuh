// Order between launches that may overlap: every call waits for what comes before it in its stream,
// whether that is a kernel that lets it start early, another call, a copy or an event, eagerly and
// in a graph.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/backends/flash_sm90/launch.hpp"
#include "tests/gpu/flash_sm90_oracle.cuh"

namespace order {

using namespace fovea::flash_sm90;

/// Lets the next launch start at once, and only later writes what that one reads.
__global__ void write_late(uint4* to, const uint4* from, std::size_t count) {
#if __CUDA_ARCH__ >= 900  // the tests are compiled for every architecture of the build
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const long long start = clock64();
  while (clock64() - start < 100000) {
  }
  for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

inline constexpr int kHeads = 6, kRows = 700;

/// One kind of call on [1, kRows, kHeads, head_dim] tensors. Everything that says what it computes
/// lies in `tables`, of which `good_tables` is a copy.
struct Kind {
  std::string name;
  Problem problem;
  Choice choice;
  Arguments arguments;
  std::unique_ptr<Buffer> tables, good_tables, workspace;
  DeviceCache cache;
  std::size_t used = 0;  // bytes of tables

  Kind(const char* title, int head_dim) : name(title) {
    problem.heads_q = problem.heads_kv = kHeads;
    problem.seq_q = problem.seq_kv = kRows;
    problem.head_dim = problem.dim_v = head_dim;
    tables = std::make_unique<Buffer>(std::size_t{1} << 16);
    good_tables = std::make_unique<Buffer>(std::size_t{1} << 16);
    const Tensor shape{nullptr, std::int64_t{kRows} * kHeads * head_dim, kHeads * head_dim,
                       head_dim};
    arguments.q = arguments.k = arguments.v = arguments.out = shape;
    arguments.scale = 1.f;  // sharp: an output row is close to one row of v
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(kRows * kHeads * problem.head_dim) * 2;
  }
  template <class T>
  T* table(const std::vector<T>& values) {
    const std::size_t at = used, size = values.size() * sizeof(T);
    used += (size + 15) / 16 * 16;
    for (Buffer* b : {tables.get(), good_tables.get()})
      CHECK(cudaMemcpy(static_cast<char*>(b->data) + at, values.data(), size,
                       cudaMemcpyHostToDevice));
    return reinterpret_cast<T*>(static_cast<char*>(tables->data) + at);
  }
  bool ready() {
    choice = choose(problem);
    workspace = std::make_unique<Buffer>(choice.workspace_bytes);
    arguments.workspace = workspace->data;
    return choice.refusal == Refusal::none;
  }
  bool call(void* q, void* k, void* v, void* out, cudaStream_t stream) {
    Arguments a = arguments;
    a.q.data = q;
    a.k.data = k;
    a.v.data = v;
    a.out.data = out;
    return launch(problem, choice, a, 0, cache, stream).stage == 0;
  }
};

using Kinds = std::vector<std::unique_ptr<Kind>>;

inline void add_list(Kinds& kinds, const char* name, int head_dim, int block) {
  auto& k = *kinds.emplace_back(std::make_unique<Kind>(name, head_dim));
  k.problem.list = true;
  k.problem.list_block_q = k.problem.list_block_kv = block;
  const int blocks = (kRows + block - 1) / block;
  std::vector<int> counts, indices;
  for (int row = 0; row < blocks; row++) {
    const std::size_t end = indices.size() + static_cast<std::size_t>(blocks);
    counts.push_back(0);
    for (int n = 0; n < blocks; n++)
      if ((row * 7 + n * 3) % 4 < 2) indices.push_back(n), counts.back()++;
    indices.resize(end, 0);
  }
  k.arguments.list_counts = k.table(counts);
  k.arguments.list_indices = k.table(indices);
  k.arguments.list_index_tile = blocks;
}

inline Kinds make_kinds() {
  Kinds kinds;
  for (const int d : {128, 64, 96, 256})
    kinds.push_back(std::make_unique<Kind>(("plain " + std::to_string(d)).c_str(), d));
  for (const int d : {128, 64}) {
    const std::string end = " " + std::to_string(d);
    const auto add = [&](const char* name) -> Kind& {
      return *kinds.emplace_back(std::make_unique<Kind>((name + end).c_str(), d));
    };
    Kind& lengths = add("lengths");
    lengths.problem.lengths = true;
    lengths.arguments.kv_lengths = lengths.table<int>({633});
    Kind& packed = add("packed");
    packed.problem.packed = true;
    packed.problem.batch = 3;
    packed.arguments.q.batch = packed.arguments.k.batch = 0;
    packed.arguments.v.batch = packed.arguments.out.batch = 0;
    packed.arguments.cu_seqlens_q = packed.table<int>({0, 200, 201, kRows});
    packed.arguments.cu_seqlens_kv = packed.table<int>({0, 300, 450, kRows});
    Kind& bits = add("key bits");
    bits.problem.key_bits = true;
    std::vector<std::uint8_t> mask(kRows);
    for (int n = 0; n < kRows; n++) mask[static_cast<std::size_t>(n)] = n * 7 % 5 != 0;
    bits.arguments.key_mask = bits.table(mask);
    bits.arguments.key_mask_batch = kRows;
    Kind& band = add("band");
    band.problem.band = band.problem.lengths = true;
    band.problem.window_right = 0;
    band.arguments.kv_lengths = band.table<int>({690});
    add_list(kinds, ("list" + end).c_str(), d, 128);
    add_list(kinds, ("small list" + end).c_str(), d, 64);
  }
  add_list(kinds, "list 256", 256, 128);
  return kinds;
}

inline bool same(const Buffer& a, const Buffer& b) {
  std::vector<char> x(a.bytes), y(a.bytes);
  CHECK(cudaMemcpy(x.data(), a.data, a.bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(y.data(), b.data, b.bytes, cudaMemcpyDeviceToHost));
  return !std::memcmp(x.data(), y.data(), a.bytes);
}
inline void fill(const Buffer& b, std::uint64_t seed, cudaStream_t stream) {
  oracle::fill_normal<<<256, 256, 0, stream>>>(b.data, 1, 0, 0, 0, 1, 1, 1,
                                               static_cast<int>(b.bytes / 2), 1.f, 0.f, seed);
}

/// Whether `work` leaves in `out` what `want` holds, run as it is and captured in a graph. `reset`
/// comes before each run and is complete before it.
inline bool holds(const std::function<void()>& reset, const std::function<void()>& work,
                  const Buffer& out, const Buffer& want, cudaStream_t stream) {
  for (int round = 0; round < 3; round++) {
    reset();
    CHECK(cudaDeviceSynchronize());
    work();
    CHECK(cudaDeviceSynchronize());
    if (!same(out, want)) return false;
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  work();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  bool ok = true;
  for (int round = 0; ok && round < 3; round++) {
    reset();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaDeviceSynchronize());
    ok = same(out, want);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return ok;
}

/// Every input of a call, and what its tables hold, arrives from kernels that let it start early.
inline bool inputs_arrive_late(Kind& kind, std::uint64_t seed, cudaStream_t stream) {
  const std::size_t bytes = kind.bytes();
  Buffer q(bytes), k(bytes), v(bytes), good_q(bytes), good_k(bytes), good_v(bytes), out(bytes),
      want(bytes);
  fill(good_q, seed, stream);
  fill(good_k, seed + 1, stream);
  fill(good_v, seed + 2, stream);
  CHECK(cudaDeviceSynchronize());
  bool launched = kind.call(good_q.data, good_k.data, good_v.data, want.data, stream);
  CHECK(cudaDeviceSynchronize());
  const auto late = [&](const Buffer& to, const Buffer& from) {
    write_late<<<1, 1024, 0, stream>>>(static_cast<uint4*>(to.data),
                                       static_cast<const uint4*>(from.data), from.bytes / 16);
  };
  bool ok = launched;
  for (int input = 0; input < 4 && ok; input++) {
    const std::pair<const Buffer*, const Buffer*> pairs[] = {
        {&q, &good_q}, {&k, &good_k}, {&v, &good_v}, {kind.tables.get(), kind.good_tables.get()}};
    if (input == 3 && kind.used == 0) break;
    const auto reset = [&] {
      for (int n = 0; n < 4; n++) {
        if (n != input)
          CHECK(cudaMemcpy(pairs[n].first->data, pairs[n].second->data, pairs[n].second->bytes,
                           cudaMemcpyDeviceToDevice));
        else
          CHECK(cudaMemset(pairs[n].first->data, n == 3 ? 0 : 0xff, pairs[n].first->bytes));
      }
      CHECK(cudaMemset(out.data, 0xff, out.bytes));
    };
    const auto work = [&] {
      late(*pairs[input].first, *pairs[input].second);
      launched &= kind.call(q.data, k.data, v.data, out.data, stream);
    };
    ok = holds(reset, work, out, want, stream) && launched;
    CHECK(cudaMemcpy(kind.tables->data, kind.good_tables->data, kind.tables->bytes,
                     cudaMemcpyDeviceToDevice));
  }
  return ok;
}

/// What stands between the calls of a chain.
enum class Between { nothing, memory, streams };

/// A chain of calls of all kinds of one head dimension in which each reads what the two before it
/// wrote. `buffers` outputs take turns: many show a read that comes early (they start as NaN), few
/// show a write that does.
inline bool chain_holds(Kinds& kinds, int head_dim, int buffers, Between between,
                        std::uint64_t seed, cudaStream_t stream, cudaStream_t other) {
  std::vector<Kind*> calls;
  for (int round = 0; round < 2; round++)
    for (auto& kind : kinds)
      if (kind->problem.head_dim == head_dim) calls.push_back(kind.get());
  const std::size_t bytes = calls[0]->bytes(), count = calls.size();
  Buffer k(bytes), v(bytes), first(bytes), last(bytes), want(bytes), copy(bytes);
  std::vector<std::unique_ptr<Buffer>> ring;
  for (int n = 0; n < buffers; n++) ring.push_back(std::make_unique<Buffer>(bytes));
  fill(k, seed, stream);
  fill(v, seed + 1, stream);
  fill(first, seed + 2, stream);
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  bool launched = true;
  const auto reset = [&] {
    for (auto& b : ring) CHECK(cudaMemset(b->data, 0xff, bytes));
    for (Buffer* b : {&last, &copy}) CHECK(cudaMemset(b->data, 0xff, bytes));
  };
  const auto run = [&](bool wait) {
    cudaStream_t now = stream, next = other;
    const void *q = first.data, *older = v.data;
    for (std::size_t i = 0; i < count; i++) {
      void* out = i + 1 == count ? last.data : ring[i % ring.size()]->data;
      const bool copied = !wait && between == Between::memory && i % 2 == 1;
      if (copied) CHECK(cudaMemcpyAsync(copy.data, q, bytes, cudaMemcpyDeviceToDevice, now));
      launched &= calls[i]->call(copied ? copy.data : const_cast<void*>(q), k.data,
                                 const_cast<void*>(older), out, now);
      if (wait) CHECK(cudaDeviceSynchronize());
      if (copied && i % 3 == 2) CHECK(cudaMemsetAsync(copy.data, 0xff, bytes, now));
      if (!wait && between == Between::streams && i % 3 == 1) {
        CHECK(cudaEventRecord(event, now));
        CHECK(cudaStreamWaitEvent(next, event));
        std::swap(now, next);
      }
      older = i % 2 == 0 ? v.data : q;
      q = out;
    }
    if (now != stream) {  // a captured graph ends where it began
      CHECK(cudaEventRecord(event, now));
      CHECK(cudaStreamWaitEvent(stream, event));
    }
  };
  reset();
  run(true);
  CHECK(cudaMemcpy(want.data, last.data, bytes, cudaMemcpyDeviceToDevice));
  const bool ok = holds(
      reset, [&] { run(false); }, last, want, stream);
  CHECK(cudaEventDestroy(event));
  return ok && launched;
}

/// Runs everything; returns how many passed and adds the failures.
inline int check(std::uint64_t seed, int& failed) {
  cudaStream_t stream, other;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  Kinds kinds = make_kinds();
  int passed = 0;
  const auto note = [&](bool ok, const std::string& name) {
    (ok ? passed : failed)++;
    if (!ok) std::printf("FAIL order: %s\n", name.c_str());
    std::fflush(stdout);
  };
  for (auto& kind : kinds) {
    if (!kind->ready()) {
      note(false, kind->name + " refused");
      return passed;
    }
    note(inputs_arrive_late(*kind, seed, stream), "late inputs, " + kind->name);
  }
  const char* names[] = {"calls alone", "copies between", "two streams"};
  for (const int head_dim : {128, 64})
    for (const int buffers : {14, 3})
      for (const Between between : {Between::nothing, Between::memory, Between::streams})
        note(chain_holds(kinds, head_dim, buffers, between, seed, stream, other),
             "chain d" + std::to_string(head_dim) + " of " + std::to_string(buffers) +
                 " buffers, " + names[static_cast<int>(between)]);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
  return passed;
}

}  // namespace order
